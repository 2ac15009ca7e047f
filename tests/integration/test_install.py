"""The package as users get it: from a wheel and as an editable install, not from this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

CODE = {".py", ".pyc"}
# What the wheel takes from the source tree, and under which name
FOLDERS = {
    "persona_agents": "persona_agents",
    "tasks": "persona_agents/tasks",
    "zoo": "persona_agents/zoo",
    "parlai_internal": "parlai_internal",
}


def pip(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the source tree, as building leaves files behind."""
    copy = tmp_path_factory.mktemp("source") / "project"
    copy.mkdir()
    for name in [*FOLDERS, "setup.py", "pyproject.toml", "requirements-b.txt", "README.md"]:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_wheel_holds_every_file(source, wheel):
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"{packaged}/{path.relative_to(source / folder).as_posix()}"
        for folder, packaged in FOLDERS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    assert {Path(name).suffix for name in expected} - CODE, (
        "no data file: is this the right folder?"
    )
    assert expected - in_wheel == set()


def test_wheel_brings_no_generic_package(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    tops = {name for name in tops if not name.endswith(".dist-info")}
    assert tops == {"persona_agents", "parlai_internal"}


COMMANDS = [
    ["display_data", "-t", "cpc:mini", "-n", "1"],
    ["display_data", "-t", "personachat_single_turn:mini", "-n", "1"],
]


def train(model_file):
    """A few steps of an agent of ParlAI's own on our task, with its default scheduler."""
    return [
        *("train_model", "-m", "transformer/generator", "-t", "cpc:mini", "-mf", model_file),
        *("--max-train-steps", "2", "-bs", "2", "--embedding-size", "8", "--ffn-size", "8"),
        *("--n-layers", "1", "--skip-generation", "true", "--short-final-eval", "true"),
        *("--validation-max-exs", "2", "--dict-maxexs", "20"),
    ]


def test_wheel_works(wheel, tmp_path, run_parlai_commands):
    target = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    result = run_parlai_commands(
        *COMMANDS, train(tmp_path / "model"), env={"PYTHONPATH": str(target)}
    )
    assert result.returncode == 0, result.stderr
    assert "your persona: " in result.stdout
    assert (tmp_path / "model").exists()


def test_editable_install_works(source, tmp_path, run_parlai_commands):
    environment = tmp_path / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120
    )
    python = environment / "bin" / "python"
    # the dependencies are those of this interpreter
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    without_network = ["--no-deps", "--no-index", "--no-build-isolation"]
    pip("--python", python, "install", *without_network, "-e", source)

    code = (
        "import persona_agents as p, persona_agents.tasks, persona_agents.zoo.model_list\n"
        "print(p.__file__, persona_agents.tasks.__path__)"
    )
    where = subprocess.run(
        [str(python), "-c", code],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert where.stdout.count(str(source)) == 2, where.stdout + where.stderr
    result = run_parlai_commands(*COMMANDS, env={"PYTHONPATH": ""}, python=python)
    assert result.returncode == 0, result.stderr
    assert "your persona: " in result.stdout
