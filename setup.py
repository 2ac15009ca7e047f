"""Packaging of persona_agents.

The folders tasks/ and zoo/ become persona_agents.tasks and persona_agents.zoo, so no package with
a generic name reaches site-packages.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (ROOT / "persona_agents" / "__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)
README = ROOT / "README.md"

# ParlAI 1.7.2 pins libraries of 2023 (numpy 1.23 among them), which have no wheels for Python 3.12
# and later. Up to 3.11 plain pip installs all of it; the caps keep pip from newer releases that
# cannot be combined with those pins, through which it would otherwise search for minutes. From
# 3.12 on ParlAI is installed apart, without its pins, beside current libraries.
WITH_PARLAI = "; python_version < '3.12'"
WITHOUT_PARLAI = "; python_version >= '3.12'"
REQUIREMENTS = [
    "torch>=1.13" + WITH_PARLAI,
    "bert-score" + WITH_PARLAI,
    "jieba" + WITH_PARLAI,
    "portalocker" + WITH_PARLAI,
    "tornado" + WITH_PARLAI,
    "textblob>=0.17" + WITH_PARLAI,  # parts of speech of English words
    "sacrebleu>=2.2,<3" + WITH_PARLAI,
    "parlai==1.7.2" + WITH_PARLAI,
    "transformers>=4.30,<4.34" + WITH_PARLAI,
    "huggingface-hub<0.17" + WITH_PARLAI,
    "setuptools<81" + WITH_PARLAI,  # ParlAI imports pkg_resources
    "pyarrow<20" + WITH_PARLAI,  # newer ones need numpy 2
]
REQUIREMENTS += [
    requirement + WITHOUT_PARLAI
    for line in (ROOT / "requirements-b.txt").read_text(encoding="utf-8").splitlines()
    if (requirement := line.split("#")[0].strip())
]


def packages_and_folders():
    """Return the names of all packages and, for mapped ones, their folders."""
    packages = find_packages(include=["persona_agents*", "parlai_internal*"])
    folders = {}
    for folder in ("tasks", "zoo"):
        name = f"persona_agents.{folder}"
        packages += [name] + [f"{name}.{sub}" for sub in find_packages(folder)]
        folders[name] = folder
    return packages, folders


# endings of all files beside Python code that belong to the package
DATA = ["json", "jsonl", "txt", "yml", "yaml", "opt", "md", "html", "css", "js", "svg", "zip"]
PACKAGES, FOLDERS = packages_and_folders()

setup(
    name="persona_agents",
    version=VERSION,
    description="Persona dialogue for ParlAI: agents, tasks and metrics",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.9",
    packages=PACKAGES,
    package_dir=FOLDERS,
    include_package_data=False,
    package_data={"": [f"**/*.{ending}" for ending in DATA]},
    install_requires=REQUIREMENTS,
    extras_require={
        # newer releases of selenium need a urllib3 that ParlAI's pins exclude
        "dev": [
            *("pytest", "ruff", "build", "pre-commit", "selenium<4.33"),
            *("krippendorff", "statsmodels"),  # agreement is tested without Mephisto too
        ],
        # human evaluation; Mephisto's own pins exist for Python 3.9 to 3.11 only
        "crowdsourcing": ["mephisto==1.1.1", "krippendorff", "statsmodels", "matplotlib"],
    },
)
