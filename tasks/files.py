"""The files of a task: finding them, in folders or zips as downloaded, and reading their lines."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field

import portalocker
import tqdm
from parlai.utils import logging

from persona_agents.errors import PersonaAgentsError

# From this size on a file is worth a progress bar, and what is made of it a cache on the disk.
LARGE = 2**20  # bytes
WAIT = 3600  # seconds to wait for another process that does the same


@dataclass(frozen=True)
class DataFile:
    """A file on disk, or (`member`) a file inside a zip file."""

    path: str
    member: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else self.path

    def stamp(self) -> list:
        """Tells whether the file is still the same: path, member, bytes, time of change in ns."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise _unreadable(self, error) from None
        return [os.path.abspath(self.path), self.member, status.st_size, status.st_mtime_ns]

    def size(self) -> int:
        """Its size in bytes, unpacked."""
        if self.member is None:
            return os.stat(self.path).st_size
        with open_zip(self.path) as archive:
            return archive.getinfo(self.member).file_size

    @contextlib.contextmanager
    def open(self):
        """Open it for reading bytes; whatever goes wrong, now or while reading, is one message."""
        try:
            with contextlib.ExitStack() as stack:
                if self.member is None:
                    file = stack.enter_context(open(self.path, "rb"))
                else:
                    archive = stack.enter_context(open_zip(self.path))
                    file = stack.enter_context(self._open_member(archive))
                yield file
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise PersonaAgentsError(
                f"{self} is damaged ({error}). Fetch the zip file again."
            ) from None
        except OSError as error:
            raise _unreadable(self, error) from None

    def _open_member(self, archive):
        try:
            return archive.open(self.member)
        except (RuntimeError, NotImplementedError) as error:  # a password, an unknown compression
            raise PersonaAgentsError(
                f"{self} cannot be unpacked ({error}). Unpack it by hand and name the folder."
            ) from None


def _unreadable(what, error: OSError) -> PersonaAgentsError:
    return PersonaAgentsError(
        f"{what} cannot be read: {error.strerror}. Check that it is a file and that you may read it."
    )


def open_zip(path: str) -> zipfile.ZipFile:
    """Open a zip file; one that is none, or is cut off, is one message."""
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise PersonaAgentsError(
            f"{path} is no complete zip file ({error}). Fetch it again; a page that asks for a "
            "login may have been saved in its place."
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def members(path: str) -> list[str]:
    """The files inside a zip file, without what macOS adds."""
    with open_zip(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
    return [
        name
        for name in names
        if not name.startswith("__MACOSX/") and not os.path.basename(name).startswith(".")
    ]


def is_named(path: str, names) -> bool:
    """Whether a path's last part is one of some names, whatever its case, hyphens, underscores."""
    return _plain(path) in map(_plain, names)


def _plain(name: str) -> str:
    """A file name without its folder, case, hyphens and underscores."""
    return os.path.basename(name).lower().replace("_", "").replace("-", "")


def _choose(candidates, names) -> str | None:
    """The first candidate that bears the first of the names borne at all."""
    by_name = {_plain(candidate): candidate for candidate in reversed(list(candidates))}
    return next((by_name[_plain(name)] for name in names if _plain(name) in by_name), None)


def search(place: str, names, zips=()) -> DataFile | None:
    """
    Look for a file by its possible names, in this order of preference.

    :param str place: a folder (its sub-folders are searched too, but not theirs) or a zip file
    :param names: file names; case, hyphens and underscores do not matter
    :param zips: names of zip files in the folder that may hold the file
    :return: the file, or None; raises PersonaAgentsError if `place` is neither
    """
    if os.path.isfile(place):
        name = _choose(members(place), names)
        return name and DataFile(place, name)
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(place, error) from None
    paths = [entry.path for entry in entries]
    for entry in entries:
        if entry.is_dir():
            with contextlib.suppress(OSError):  # a folder that is not ours to read
                paths += sorted(sub.path for sub in os.scandir(entry.path) if sub.is_file())
    found = _choose(paths, names)
    if found:
        return DataFile(found)
    for name in zips:
        archive = _choose(paths, (name,))
        member = archive and _choose(members(archive), names)
        if member:
            return DataFile(archive, member)
    return None


def missing(place: str, names, how_to_get: str) -> PersonaAgentsError:
    """The error for a file that is not there; `how_to_get` ends its message."""
    if not os.path.exists(place):
        return PersonaAgentsError(f"There is no file or folder {place}. {how_to_get}")
    return PersonaAgentsError(f"{place} holds no {' or '.join(names)}. {how_to_get}")


def is_zip(path: str) -> bool:
    """Whether a path names a zip file, which may be a broken one."""
    return os.path.isfile(path) and (path.lower().endswith(".zip") or zipfile.is_zipfile(path))


class BadLine(ValueError):
    """Why a line cannot be used, and (`kind`) the same in words that fit every such line."""

    def __init__(self, reason: str, kind: str | None = None):
        super().__init__(reason)
        self.kind = kind or reason


class BadLineError(PersonaAgentsError):
    """A line of a data file cannot be used."""

    def __init__(self, file, line: int, reason: str):
        super().__init__(
            f"{file}, line {line}: {reason}. Mend or delete the line, fetch the file again, or leave "
            "out such lines with --skip-bad-lines true."
        )


@dataclass
class Report:
    """
    What became of the lines of a file. Nothing is left out without being counted here.

    lines = blank + skipped + read; a line is one dialogue in CPC. `dialogues` sorts them by split or
    by why they are in none, `pairs` sorts each split's pairs into `kept` and reasons why they are
    not. `notes` counts what is odd and changes nothing.
    """

    lines: int = 0
    blank: int = 0
    read: int = 0
    skipped: Counter = field(default_factory=Counter)
    dialogues: Counter = field(default_factory=Counter)
    pairs: dict[str, Counter] = field(default_factory=dict)
    notes: Counter = field(default_factory=Counter)

    def adds_up(self) -> bool:
        """Whether each line has been counted once."""
        return self.lines == self.blank + self.read + sum(self.skipped.values())

    def to_dict(self) -> dict:
        """Plain data for JSON."""
        plain = {
            key: dict(value) for key, value in vars(self).items() if isinstance(value, Counter)
        }
        pairs = {split: dict(counts) for split, counts in self.pairs.items()}
        return {**vars(self), **plain, "pairs": pairs}

    def summary(self) -> str:
        """One line for the log: what a user should know of, empty if there is nothing."""
        parts = [f"{count} lines skipped ({why})" for why, count in sorted(self.skipped.items())]
        parts += [f"{count} {what}" for what, count in sorted(self.notes.items())]
        return "; ".join(parts)


def read_lines(file: DataFile, parse, report: Report, skip_bad: bool = False):
    """
    Yield (line number, what `parse` makes of the line) for the lines that are not blank.

    The encoding is UTF-8; a byte order mark and CRLF line ends are tolerated. A large file shows a
    progress bar.

    :param parse: called with the text of a line; raises BadLine if it is of no use
    :param Report report: counts the lines
    :param bool skip_bad: count and leave out a bad line, which otherwise is a BadLineError
    """
    with file.open() as lines, _progress(file) as progress:
        for number, raw in enumerate(lines, 1):
            progress.update(len(raw))
            report.lines += 1
            try:
                text = _decode(raw, number)
                if not text.strip():
                    report.blank += 1
                    continue
                item = parse(text)
            except BadLine as error:
                if not skip_bad:
                    raise BadLineError(file, number, str(error)) from None
                report.skipped[error.kind] += 1
                continue
            report.read += 1
            yield number, item


def _decode(raw: bytes, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
    except UnicodeDecodeError as error:
        hint = ""
        encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "gb18030"
        with contextlib.suppress(UnicodeError):
            if encoding == "utf-16" or raw.decode(encoding):
                hint = f"; if it is {encoding}, iconv -f {encoding} -t utf-8 converts the file"
        raise BadLine(f"not UTF-8 ({error.reason}{hint})", "not UTF-8") from None


def _progress(file: DataFile):
    size = file.size()
    return tqdm.tqdm(
        total=size,
        unit="B",
        unit_scale=True,
        desc=f"Reading {os.path.basename(file.member or file.path)}",
        disable=size < LARGE,
    )


@contextlib.contextmanager
def locked(path: str, waits_for: str):
    """
    Hold a lock that other processes respect; one that is killed loses it.

    :param str path: of the file that stands for the lock; it stays
    :param str waits_for: what a process is told that it waits for
    :raises OSError: the lock cannot be made, or is not given up within an hour
    """
    try:
        try:
            lock = portalocker.Lock(path, fail_when_locked=True)
            lock.acquire()
        except portalocker.exceptions.AlreadyLocked:
            logging.info(f"Waiting for another process, {waits_for}.")
            lock = portalocker.Lock(path, timeout=WAIT)
            lock.acquire()
    except portalocker.exceptions.LockException as error:
        raise OSError(f"no lock on {path} ({error})") from None
    try:
        yield
    finally:
        lock.release()


def add_reading_argument(group) -> None:
    """Add --skip-bad-lines to a task's options."""
    group.add_argument(
        "--skip-bad-lines",
        type="bool",
        default=False,
        help="count and leave out lines that cannot be used, which otherwise stop the reading",
    )
