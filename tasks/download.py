"""Fetching files from a mirror of the user's own: resumed when cut off, checked before use.

ParlAI's own `download` begins anew after each cut and writes under the final name, so that half a
file is taken for data at the next start; hence this one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from urllib.parse import unquote, urldefrag, urlsplit

import requests
import tqdm
from parlai.utils import logging
from persona_agents.tasks.files import locked

from persona_agents.errors import PersonaAgentsError

ATTEMPTS = 6  # connections without any progress before giving up
TIMEOUT = 30.0  # seconds without a byte after which a connection counts as dead
PAUSE = 2.0  # seconds before the second attempt, doubled each time
_CHUNK = 4096  # bytes; what has come of a chunk is lost when the connection stalls


class _Interrupted(Exception):
    """A connection ended early; the next attempt goes on where it stopped."""


def fetch(urls: str, folder: str) -> list[str]:
    """
    Make sure that the files of some URLs lie in a folder.

    A file that is there already is taken as it is: it got its name only after it was checked.

    :param str urls: one URL or several with commas between; `#sha256=…` at the end of one is the
        checksum of its file
    :return: the paths; raises PersonaAgentsError, and then leaves `….part`, which is resumed
    """
    paths = []
    for url in filter(None, (part.strip() for part in urls.split(","))):
        url, fragment = urldefrag(url)
        match = re.fullmatch(r"(?:sha256=([0-9a-fA-F]{64}))?", fragment)
        name = os.path.basename(unquote(urlsplit(url).path))
        if match is None or not name or urlsplit(url).scheme not in ("http", "https"):
            raise PersonaAgentsError(
                f"{url}#{fragment} is no address of a file. It is to look like "
                "https://host/Dialog_train.zip#sha256=<64 hexadecimal digits>."
            )
        paths.append(os.path.join(folder, name))
        try:
            os.makedirs(folder, exist_ok=True)
            if not os.path.exists(paths[-1]):
                with locked(f"{paths[-1]}.lock", "which fetches the same file"):
                    if not os.path.exists(paths[-1]):  # another process may have fetched it
                        _fetch(url, paths[-1], match[1])
        except OSError as error:
            raise PersonaAgentsError(
                f"{url} cannot be stored in {folder}: {getattr(error, 'strerror', None) or error}."
            ) from None
    return paths


def _fetch(url: str, path: str, checksum: str | None) -> None:
    part = f"{path}.part"
    resumed = os.path.exists(part)
    _download(url, part)
    found = _sha256(part)
    if checksum and found != checksum.lower() and resumed:
        # What was there may have been the beginning of something else.
        os.remove(part)
        _download(url, part)
        found = _sha256(part)
    if checksum and found != checksum.lower():
        os.remove(part)
        raise PersonaAgentsError(
            f"{url} gave a file with the SHA-256 checksum {found}, but {checksum.lower()} is "
            "expected. It was deleted. Check the address and the checksum."
        )
    if not checksum:
        logging.warning(f"{url} was not checked. To have it checked append #sha256={found}")
    os.replace(part, path)


def _download(url: str, part: str) -> None:
    """Fetch a URL into a file, in as many connections as it takes while there is progress."""
    failures = 0
    while True:
        before = _size(part)
        try:
            _connect(url, part)
            return
        except (_Interrupted, requests.RequestException) as error:
            failures = 0 if _size(part) > before else failures + 1
            if failures >= ATTEMPTS:
                raise PersonaAgentsError(
                    f"{url} cannot be fetched: {error}. What has come so far is kept, and the same "
                    "command goes on from there. Or fetch the file by other means and put it in "
                    f"{os.path.dirname(part)}."
                ) from None
            logging.info(f"{url}: {error}; going on at byte {_size(part)}")
            time.sleep(PAUSE * 2**failures if failures else 0)


def _connect(url: str, part: str) -> None:
    """One connection; returns when the file is complete."""
    have = _size(part)
    headers = {"Accept-Encoding": "identity"}  # else the lengths are those of compressed data
    if have:
        headers["Range"] = f"bytes={have}-"
    with contextlib.closing(
        requests.get(url, stream=True, timeout=TIMEOUT, headers=headers)
    ) as response:
        if response.status_code == 416:  # there is nothing beyond what we have
            total = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
            if total is None or int(total[1]) == have:
                return
            os.remove(part)
            raise _Interrupted("the file is shorter than what was there; beginning anew")
        if response.status_code >= 500:
            raise _Interrupted(f"the server answers {response.status_code}")
        if response.status_code not in (200, 206):
            raise PersonaAgentsError(
                f"{url} cannot be fetched: the server answers {response.status_code} "
                f"{response.reason}. Check the address."
            )
        if response.status_code == 200:
            have = 0  # the server does not resume
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm.tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=url)
        with open(part, "ab" if have else "wb") as file, bar:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
        if total is not None and _size(part) < total:
            raise _Interrupted(f"the connection ended after {_size(part)} of {total} bytes")


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_CHUNK), b""):
            digest.update(block)
    return digest.hexdigest()
