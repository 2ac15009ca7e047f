"""
Reading what a training has saved: data only, never code, and a broken file is named.

A checkpoint is the weights' file and, beside it, ``.opt``, ``.dict`` and ``.trainstats``. All that
must agree when a training goes on (weights, optimiser, counters, random states, position in the
data) lies in the one file of the weights, under :data:`PROGRESS`: a file that is replaced in one
step cannot be half old and half new.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import random
import zipfile

import numpy
import torch

from persona_agents.errors import PersonaAgentsError

PROGRESS = "train_progress"  # key in the weights' file


class BrokenFileError(PersonaAgentsError):
    """A file of a checkpoint cannot be read."""

    def __init__(self, path: str, what: str, reason: object):
        reason = (str(reason) or type(reason).__name__).splitlines()[0].rstrip(".")
        super().__init__(
            f"{path} cannot be read as {what}: {reason}. Restore the file from a copy; without one, "
            "delete it to go on without it, or give --model-file a new path."
        )


def read_json(path: str, what: str) -> dict:
    """A JSON object; :class:`BrokenFileError` for anything else (cut off, empty, binary)."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")  # noqa: TRY004 - the file is wrong
    except (OSError, ValueError) as error:
        raise BrokenFileError(path, what, error) from None
    return content


def read_checkpoint(path: str, lazily: bool = False) -> dict:
    """
    The content of a weights' file, of which only tensors and plain data are unpickled.

    :param lazily: leave tensors on disk until they are looked at, where torch can.
    """
    options = {"map_location": "cpu", "weights_only": True}
    can = "mmap" in inspect.signature(torch.load).parameters and zipfile.is_zipfile(path)
    if lazily and can:
        options["mmap"] = True
    return checked(path, lambda: torch.load(path, **options))


def read_checkpoint_of_parlai(path: str) -> dict:
    """
    The content of a weights' file of any ParlAI agent, which may be years old.

    Read by ParlAI's own unpickler, which :mod:`persona_agents.compat_files` keeps from running code.
    """
    import parlai.utils.pickle

    options = {"map_location": "cpu", "weights_only": False}
    return checked(path, lambda: torch.load(path, pickle_module=parlai.utils.pickle, **options))


def checked(path: str, load) -> dict:
    """What ``load`` returns; any failure of it is told in one message that names the file."""
    try:
        states = load()
        if not isinstance(states, dict):
            raise ValueError("it holds no dictionary of states")  # noqa: TRY004
    except pickle.UnpicklingError as error:
        raise BrokenFileError(path, "a checkpoint", _refusal(error)) from None
    except EOFError:
        raise BrokenFileError(path, "a checkpoint", "it is empty or ends too early") from None
    except (OSError, RuntimeError, ValueError, LookupError, AttributeError) as error:
        raise BrokenFileError(path, "a checkpoint", error) from None
    return states


def _refusal(error: pickle.UnpicklingError) -> str:
    text = str(error).lower()
    if "global" in text:  # torch: "Unsupported global", "unsupported GLOBAL posix.mkdir"
        return "it holds more than tensors and plain data, so reading it could run foreign code"
    return "it is damaged, or no file of tensors and plain data"


def without_numpy(value):
    """
    Plain data with Python's numbers in place of numpy's, at any depth.

    ParlAI's `invsqrt` schedule computes rates with numpy, whose numbers are read back as code would
    be.
    """
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: without_numpy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_numpy(part) for part in value]
    return value


def read_progress(path: str) -> dict | None:
    """What :func:`TrainLoop.save_model` put under PROGRESS; None if there is nothing."""
    if not os.path.exists(path):
        return None
    try:
        states = read_checkpoint(path, lazily=True)
    except BrokenFileError:  # or an old file of ParlAI's own
        states = read_checkpoint_of_parlai(path)
    return states.get(PROGRESS)


# -- random states ---------------------------------------------------------------------------------


def random_states() -> dict:
    """States of all generators that a training draws from, as tensors and plain data."""
    _, numpy_keys, *numpy_rest = numpy.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (numpy_keys.tolist(), *(float(x) if x % 1 else int(x) for x in numpy_rest)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state().cpu() if torch.cuda.is_available() else None,
    }


def restore_random_states(states: dict) -> None:
    """Go on drawing where :func:`random_states` was taken."""
    random.setstate(states["python"])
    keys, *rest = states["numpy"]
    numpy.random.set_state(("MT19937", numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def seed(value: int) -> None:
    """Seed all generators that a training draws from."""
    random.seed(value)
    numpy.random.seed(value % 2**32)
    torch.manual_seed(value)
