"""Packed models: one zip file that holds a trained model, and nothing private or executable.

    model           weights alone, without optimiser or position in the data
    model.opt       options, without paths, addresses and accounts
    model.dict      dictionary (dvs2s has more of it in model.dict.words)
    model_card.md   what it is, how it was trained, what it scored
    SHA256SUMS      checksums of the files above, as the sha256sum command writes them

An archive comes from anywhere, so :func:`unpack` trusts nothing in it: it takes these plain files
only, of plausible sizes and right checksums, whose weights are tensors and plain data and whose
options name an agent of this package and no file of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib

import torch

from persona_agents import AGENTS
from persona_agents.checkpoint import BrokenFileError, read_checkpoint, read_json
from persona_agents.errors import PersonaAgentsError
from persona_agents.tasks.files import open_zip

FILES = ("model", "model.opt", "model.dict", "model_card.md", "SHA256SUMS")
WEIGHTS, OPTIONS, DICTIONARY, CARD, SUMS = FILES
WORDS = "model.dict.words"  # only some dictionaries have it
LINE_OF_SUMS = re.compile(r"([0-9a-f]{64})  (\S+)")
# No model shrinks to a fiftieth; a small archive that claims to is made to fill the disk.
MAX_RATIO = 50
_BLOCK = 2**20  # bytes

# What a checkpoint holds for going on with the training only.
TRAINING_STATES = (
    "optimizer",
    "optimizer_type",
    "lr_scheduler",
    "lr_scheduler_type",
    "warmup_scheduler",
    "number_training_updates",
    "grad_scaler",
    "train_progress",
    "baseline",  # dvs2s's
)

# -- what is private -------------------------------------------------------------------------------

_PRIVATE_NAME = re.compile(
    r".*_(path|datapath|file|filename|folder|dir|logdir|url|home)|(wandb|clearml|tensorboard)_.*"
    r"|datapath|init_model|init_opt|override|starttime|world_logs|dict_initpath|bpe_vocab|bpe_merge"
    r"|persona"  # what somebody wrote about himself, in a chat
)
# A path of this machine: absolute on any system, from a home or the current folder; in any text.
_PATH = re.compile(
    r"(?:^|[\s,;:=|`'\"(\[])(?:/[\w.~-]|~[\w.-]*/|\.\.?[\\/]|[A-Za-z]:[\\/]|\\\\\w|file:)"
)
_PRETRAINED = ("bert_model", "gpt_model")


def holds_path(value: object) -> bool:
    """Whether plain data hold an absolute path, or one in a home folder, at any depth."""
    if isinstance(value, str):
        return _PATH.search(value) is not None
    if isinstance(value, dict):
        return any(holds_path(part) for item in value.items() for part in item)
    return isinstance(value, (list, tuple, set)) and any(map(holds_path, value))


def private_options(opt: dict) -> list[str]:
    """Names of options that say something of the machine or the person: paths, URLs, accounts."""
    return [
        name
        for name, value in opt.items()
        if value is not None and (_PRIVATE_NAME.fullmatch(name) or holds_path(value))
    ]


def public_options(opt: dict) -> dict:
    """
    The options without the private ones and without those that are unset.

    The folder that BERT or GPT came from is private too: a saved model has no use for it.
    """
    private = set(private_options(opt))
    private.update(name for name in _PRETRAINED if os.path.isdir(str(opt.get(name))))
    return {name: v for name, v in opt.items() if v is not None and name not in private}


# -- packing ---------------------------------------------------------------------------------------


def pack(model_file: str, archive: str, write_card, half: bool = False) -> dict:
    """
    Write the archive of a trained model, whole or not at all.

    The same model gives the same bytes.

    :param write_card: called with the public options, the names of options that are left out and
        the number of parameters; returns the text of the model card
    :param half: store the weights in half precision; they are float32 again once loaded
    :return: {file: its size in bytes}
    """
    opt, states = _read_model(model_file)
    weights = states["model"]
    if half:
        states["model"] = weights = _halved(model_file, weights)
    public = public_options(opt)
    if holds_path([part for key, part in states.items() if key != "model"]):
        raise PersonaAgentsError(f"{model_file} holds paths of this machine beside its weights.")
    parameters = {(w.data_ptr(), w.shape): w.numel() for w in weights.values()}
    left_out = [name for name, value in opt.items() if value is not None and name not in public]
    card = write_card(public, left_out, sum(parameters.values()))
    if holds_path(card):
        raise PersonaAgentsError(
            f"{archive}: the model card would name a path of this machine, "
            f"{_PATH.search(card)[0].strip()}…. Leave it out of --card-license and --card-report."
        )
    folder = os.path.dirname(os.path.abspath(archive))
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".pack-") as scratch:
            torch.save(states, os.path.join(scratch, WEIGHTS))
            for name in (DICTIONARY, WORDS):
                path = model_file + name[len(WEIGHTS) :]
                if os.path.exists(path):
                    shutil.copyfile(path, os.path.join(scratch, name))
            _write(scratch, OPTIONS, json.dumps(public, indent=1, sort_keys=True) + "\n")
            _write(scratch, CARD, card)
            names = sorted(os.listdir(scratch))
            sums = (f"{sha256(os.path.join(scratch, name))}  {name}\n" for name in names)
            _write(scratch, SUMS, "".join(sums))
            sizes = _zip(scratch, [*names, SUMS], os.path.join(scratch, "archive"))
            os.replace(os.path.join(scratch, "archive"), archive)
    except OSError as error:
        raise PersonaAgentsError(f"{archive} cannot be written: {error.strerror}.") from None
    return sizes


def _read_model(model_file: str) -> tuple[dict, dict]:
    """Options and states, without those of training, of a model that one of our agents saved."""
    for suffix in ("", ".opt", ".dict"):
        if not os.path.isfile(model_file + suffix):
            raise PersonaAgentsError(
                f"{model_file}{suffix} is missing. Name the model file of a finished training."
            )
    opt = read_json(f"{model_file}.opt", "the options of a model")
    _check_agent(f"{model_file}.opt", opt)
    states = read_checkpoint(model_file)
    if not isinstance(states.get("model"), dict):
        raise PersonaAgentsError(f"{model_file} holds no weights of a model.")
    return opt, {key: part for key, part in states.items() if key not in TRAINING_STATES}


def _check_agent(path: str, opt: dict) -> None:
    package, _, agent = str(opt.get("model")).partition(":")
    if package != "persona_agents" or agent not in AGENTS:
        raise PersonaAgentsError(
            f"{path} is of the agent {opt.get('model')!r}. Only models of this package's agents can "
            f"be packed: {', '.join(AGENTS)}."
        )


def _halved(model_file: str, weights: dict) -> dict:
    """The weights in half precision; weights that were one tensor stay one."""
    halves = {}

    def halve(weight):
        if not weight.is_floating_point():
            return weight
        key = (weight.data_ptr(), weight.shape, weight.stride())
        if key not in halves:
            halves[key] = weight.half()
            if weight.isfinite().all() and not halves[key].isfinite().all():
                raise PersonaAgentsError(
                    f"{model_file} has weights that are too large for half precision: leave out "
                    "--half."
                )
        return halves[key]

    return {name: halve(weight) for name, weight in weights.items()}


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _zip(folder: str, names: list[str], archive: str) -> dict:
    """Zip files of a folder, with no time or owner of this machine."""
    sizes = {}
    with zipfile.ZipFile(archive, "w") as zip_file:
        for name in names:
            info = zipfile.ZipInfo(name)  # of 1980
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            path = os.path.join(folder, name)
            info.file_size = sizes[name] = os.path.getsize(path)
            with open(path, "rb") as file, zip_file.open(info, "w") as target:
                shutil.copyfileobj(file, target, _BLOCK)
    return sizes


def sha256(path: str) -> str:
    """Checksum of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


# -- unpacking -------------------------------------------------------------------------------------


def unpack(archive: str, folder: str) -> None:
    """
    Unpack an archive into an empty folder and check all of it.

    :raises PersonaAgentsError: anything about it is not as it should be; some files may then have
        been written already, none of them outside the folder
    """
    with open_zip(archive) as zip_file:
        entries = _entries(archive, zip_file)
        try:
            found = {entry.filename: _extract(zip_file, entry, folder) for entry in entries}
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise PersonaAgentsError(
                f"{archive} is damaged ({error}). Fetch or pack it again."
            ) from None
        except OSError as error:
            raise PersonaAgentsError(f"{archive} cannot be unpacked: {error.strerror}.") from None
    _check_sums(archive, folder, found)
    _check_content(archive, folder)


def _entries(archive: str, zip_file: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The entries of an archive, if they are those of a packed model."""
    entries = zip_file.infolist()
    names = {entry.filename for entry in entries}
    for name in sorted(names - {*FILES, WORDS}):
        raise _refused(archive, f"it holds {name!r}, which belongs to no packed model")
    for name in sorted(set(FILES) - names):
        raise _refused(archive, f"it lacks {name}")
    if len(names) < len(entries):
        raise _refused(archive, "it holds a file twice")
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or kind not in (0, stat.S_IFREG):
            raise _refused(archive, f"{entry.filename} is a link or device, not a file")
        if entry.flag_bits & 1:
            raise _refused(archive, f"{entry.filename} is encrypted")
    size, unpacked_size = os.path.getsize(archive), sum(entry.file_size for entry in entries)
    if unpacked_size > MAX_RATIO * size:
        raise _refused(
            archive, f"its {size:,} bytes would become {unpacked_size:,}, more than a model does"
        )
    return entries


def _extract(zip_file: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: str) -> str:
    """Write one file, never more than its announced size; return its checksum."""
    digest, left = hashlib.sha256(), entry.file_size
    # the name has been checked to be one of ours
    with zip_file.open(entry) as source, open(os.path.join(folder, entry.filename), "xb") as target:
        while block := source.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise zipfile.BadZipFile(f"{entry.filename} is larger than announced")
            digest.update(block)
            target.write(block)
    if left:
        raise zipfile.BadZipFile(f"{entry.filename} is smaller than announced")
    return digest.hexdigest()


def _check_sums(archive: str, folder: str, found: dict[str, str]) -> None:
    lines = _text(archive, folder, SUMS).splitlines()
    matches = [LINE_OF_SUMS.fullmatch(line) for line in lines]
    expected = {match[2]: match[1] for match in matches if match}
    if len(expected) != len(lines) or set(expected) != set(found) - {SUMS}:
        raise _refused(archive, f"its {SUMS} does not list its files")
    for name, checksum in expected.items():
        if found[name] != checksum:
            raise _refused(
                archive, f"{name} has the SHA-256 checksum {found[name]}, {SUMS} says {checksum}"
            )


def _check_content(archive: str, folder: str) -> None:
    """Options, card and weights: nothing of another machine, no code, one of our agents."""
    try:
        opt = read_json(os.path.join(folder, OPTIONS), "the options of a model")
        states = read_checkpoint(os.path.join(folder, WEIGHTS), lazily=True)
    except BrokenFileError as error:  # its message tells how to mend a file of one's own
        reason = str(error).partition(": ")[2].partition(". Restore")[0]
        name = OPTIONS if OPTIONS in str(error) else WEIGHTS
        raise _refused(archive, f"{name} cannot be read: {reason}") from None
    except RecursionError:
        raise _refused(archive, f"{OPTIONS} cannot be read: it is nested too deeply") from None
    _check_agent(f"{archive}: {OPTIONS}", opt)
    private = private_options(opt)
    if private:
        raise _refused(archive, f"{OPTIONS} sets {private[0]}, which is of no use elsewhere")
    if holds_path(_text(archive, folder, CARD)):
        raise _refused(archive, f"{CARD} names a file or folder of another machine")
    weights = states.pop("model", None)
    if not isinstance(weights, dict) or not all(map(torch.is_tensor, weights.values())):
        raise _refused(archive, f"{WEIGHTS} holds no weights of a model")
    if holds_path(states) or set(states) & set(TRAINING_STATES):
        raise _refused(archive, f"{WEIGHTS} holds more than a model: {', '.join(map(str, states))}")


def _text(archive: str, folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise _refused(archive, f"{name} is no text in UTF-8") from None


def _refused(archive: str, reason: str) -> PersonaAgentsError:
    return PersonaAgentsError(
        f"{archive} is not used: {reason}. Get it from another place, or train and pack the model "
        "yourself (parlai persona_zoo --pack)."
    )
