"""Where ``zoo:persona_agents/NAME/model`` comes from: the package itself, or a server of one's choice.

ParlAI turns such a path into ``DATAPATH/models/persona_agents/NAME/model`` and first calls
``download(datapath)`` of the module ``zoo/persona_agents/NAME.py``, which calls :func:`provide`.
Both kinds of model are archives of :mod:`persona_agents.packing`: ``zoo/persona_agents/NAME.zip``,
where it comes with the package, else ``NAME.zip`` below the address in PERSONA_AGENTS_ZOO_URL. Its
checksum is ``sha256`` in the list of models, or else stands in ``NAME.zip.sha256`` beside it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import requests
from parlai.core import build_data

import persona_agents
from persona_agents import packing
from persona_agents.errors import PersonaAgentsError
from persona_agents.tasks import download
from persona_agents.tasks.files import locked
from persona_agents.zoo.model_list import PREFIX, model_list

ZOO_URL = "PERSONA_AGENTS_ZOO_URL"


def path_of(name: str) -> str:
    """The path under which ParlAI knows a model."""
    return f"{PREFIX}{name}/{packing.WEIGHTS}"


def names() -> list[str]:
    """All models of the list."""
    return [entry["path"][len(PREFIX) :].rpartition("/")[0] for entry in model_list]


def published_checksum(name: str) -> str | None:
    """The checksum that the list of models has for a published archive."""
    return next((e.get("sha256") for e in model_list if e["path"] == path_of(name)), None)


def bundled_archive(name: str) -> Path | None:
    """The archive of a model that comes with the package."""
    root = persona_agents.SOURCE_TREE or Path(persona_agents.__file__).resolve().parent
    archive = root / "zoo" / "persona_agents" / f"{name}.zip"
    return archive if archive.exists() else None


def provide(name: str, datapath: str) -> None:
    """
    Make sure that a model lies in the data folder, whole and checked.

    A model that is there already costs no network. One that comes with the package is renewed when
    the package brings another one.

    :raises PersonaAgentsError: it cannot be had; nothing is left behind then, but the beginning of a
        download that was cut off, which the next call goes on with
    """
    folder = os.path.join(build_data.get_model_dir(datapath), "persona_agents", name)
    bundled = bundled_archive(name)
    version = packing.sha256(str(bundled)) if bundled else published_checksum(name)
    if _is_there(folder, version):
        return
    if not bundled:
        base_address(name)  # before anything is written
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with locked(f"{folder}.lock", "which gets the same model"):
            if not _is_there(folder, version):
                _install(str(bundled), folder) if bundled else _fetch(name, folder, version)
    except OSError as error:
        raise PersonaAgentsError(
            f"{folder} cannot be written: {error.strerror or error}. Name a folder for data in which "
            "you may write with --datapath or the environment variable PARLAI_DATAPATH."
        ) from None


def _is_there(folder: str, version: str | None) -> bool:
    return build_data.built(folder, version) and all(
        os.path.isfile(os.path.join(folder, name)) for name in packing.FILES
    )


def _install(archive: str, folder: str) -> None:
    """Unpack an archive beside its place and put it there in one step."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder), prefix=".unpack-") as scratch:
        new = os.path.join(scratch, "new")
        os.mkdir(new)
        packing.unpack(archive, new)
        build_data.mark_done(new, packing.sha256(archive))
        if os.path.exists(folder):
            os.rename(folder, os.path.join(scratch, "old"))
        os.rename(new, folder)


def base_address(name: str) -> str:
    """The address that the user has set; without one, an error says how to train the model."""
    address = os.environ.get(ZOO_URL, "").rstrip("/")
    if not address:
        bundled = ", ".join(path_of(other) for other in names() if bundled_archive(other))
        raise PersonaAgentsError(
            f"{path_of(name)}: this model is not published yet. Train it: parlai train_model "
            f"-o persona_agents/{name} -mf models/{name}. If you have packed models on a server, "
            f"set {ZOO_URL} to their address. Ready to use are {bundled}."
        )
    return address


def _fetch(name: str, folder: str, checksum: str | None) -> None:
    url = f"{base_address(name)}/{name}.zip"
    checksum = checksum or _checksum_beside(f"{url}.sha256")
    (archive,) = download.fetch(f"{url}#sha256={checksum}", os.path.dirname(folder))
    try:
        _install(archive, folder)
    finally:
        os.remove(archive)


def _checksum_beside(url: str) -> str:
    """The checksum in a file as `sha256sum` writes it: `<64 digits>  NAME.zip`."""
    try:
        with requests.get(url, stream=True, timeout=download.TIMEOUT) as response:
            if response.status_code != 200:
                raise PersonaAgentsError(
                    f"{url} cannot be fetched: the server answers {response.status_code} "
                    f"{response.reason}. Check the address in {ZOO_URL}."
                )
            text = next(response.iter_content(1024), b"").decode("utf-8", "replace")
    except requests.RequestException as error:
        raise PersonaAgentsError(
            f"{url} cannot be fetched ({type(error).__name__}). Check the network and the address in "
            f"{ZOO_URL}."
        ) from None
    match = re.match(r"[0-9a-fA-F]{64}\b", text)
    if match is None:
        raise PersonaAgentsError(
            f"{url} holds no SHA-256 checksum. `parlai persona_zoo --pack` writes that file; put it "
            "beside the archive."
        )
    return match[0]
