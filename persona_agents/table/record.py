"""What a number came from: versions, machine, state of the source."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import persona_agents

PACKAGES = (
    "torch",
    "parlai",
    "transformers",
    "tokenizers",
    "numpy",
    "sacrebleu",
    "bert-score",
    "jieba",
)


def versions() -> dict:
    """Versions of Python, of the packages that numbers depend on, and the machine."""
    found = {"python": platform.python_version(), "persona_agents": persona_agents.__version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    found["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    found["git"] = git_state(Path(persona_agents.__file__).resolve())
    return found


def git_state(file: Path) -> dict | None:
    """Commit of the source tree that a file belongs to; None if git does not know the file."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *arguments],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(file))  # not some repository around an environment
        changed = git("status", "--porcelain", "--untracked-files=no", ":/").splitlines()
        return {"commit": git("rev-parse", "HEAD"), "changed_files": len(changed)}
    except (OSError, subprocess.SubprocessError):
        return None
