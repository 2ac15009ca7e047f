"""
Pretrained models and how an option chooses one: ``--bert-model`` and ``--gpt-model``.

A pretrained model gives configuration, vocabulary and weights. A hub name is looked up on disk
first; when it is not there the hub is asked once, with a short time limit, so that an unreachable
hub is an error at once rather than after minutes of retries.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from dataclasses import dataclass

from persona_agents.errors import PersonaAgentsError
from persona_agents.text import task_language

HUB_TIMEOUT = 5  # seconds


@dataclass(frozen=True)
class Family:
    """One kind of pretrained model, with the options that choose one and its sizes.

    Attributes:
        name: what messages call it.
        option: the option that chooses one, e.g. ``bert_model``.
        by_language: hub names that `auto` stands for.
        model_types: what its config.json calls itself; () for any.
        files: files of its folder, for messages.
        sizes: size options and their defaults without a pretrained model.
        config_keys: where a description of a configuration holds these sizes; sizes that are not
            the pretrained model's own are not in it.
        without: what to do without such a model, for messages; "" where the option knows `none`.
    """

    name: str
    option: str
    by_language: dict
    model_types: tuple
    files: str
    sizes: dict
    config_keys: dict
    without: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.option.replace("_", "-")

    def is_none(self, opt) -> bool:
        """Whether the agent works without any pretrained model."""
        return opt.get(self.option, "auto") == "none"

    def resolve(self, opt) -> str:
        """The hub name or folder that is meant; `auto` by the language of the task."""
        name = opt.get(self.option, "auto")
        if name == "auto":
            return self.by_language[task_language(opt.get("task") or "")]
        return os.path.expanduser(name)

    # -- sizes -----------------------------------------------------------------------------------

    def size(self, opt, name: str) -> int:
        """A size option without a pretrained model, with its default."""
        given = opt.get(name)
        return self.sizes[name] if given is None else given

    def check_options(self, opt) -> None:
        """Raise for sizes that cannot be, before anything is built or written."""
        for name in self.sizes:
            if opt.get(name) is None:
                continue
            if opt[name] < 1:
                raise PersonaAgentsError(f"{_flag(name)} {opt[name]}: must be at least 1.")
            if not self.is_none(opt) and name in self.config_keys:
                raise PersonaAgentsError(
                    f"{_flag(name)} has no effect with {self.flag} "
                    f"{opt.get(self.option, 'auto')}: this size is {self.name}'s. Leave it out, or "
                    f"use {self.flag} none."
                )
        if self.is_none(opt) and self.size(opt, "embedding_size") % self.size(opt, "n_heads"):
            raise PersonaAgentsError(
                f"--embedding-size {self.size(opt, 'embedding_size')} cannot be divided among "
                f"--n-heads {self.size(opt, 'n_heads')}: make it a multiple."
            )

    def check_sizes_kept(self, opt, description: dict) -> None:
        """Raise for a size option that a saved model, described so, does not have."""
        for name, key in self.config_keys.items():
            if opt.get(name) not in (None, description[key]):
                raise PersonaAgentsError(
                    f"{_flag(name)} {opt[name]}: the saved model has {description[key]}. Leave the "
                    "option out, or give --model-file a new path to train another model."
                )

    # -- files -----------------------------------------------------------------------------------

    @property
    def _no_model(self) -> str:
        return self.without or "`none`"

    def load(self, name: str, what: str, loader):
        """
        Something of a model on disk or on the hub.

        :param name: a folder or a hub name.
        :param what: what is loaded, for messages.
        :param loader: called with the transformers module, and perhaps with local_files_only.
        """
        if os.path.isdir(name):
            self._check_folder(name)
        elif os.path.exists(name) or name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise PersonaAgentsError(
                f"{self.flag} {name}: there is no such folder. Give the folder that holds "
                f"{self.name}'s {self.files} and weights, a hub name, or {self._no_model}."
            )
        with quiet() as transformers:
            try:
                return loader(transformers, local_files_only=True)
            except Exception as error:
                if os.path.isdir(name):
                    raise PersonaAgentsError(
                        f"{self.flag} {name}: the {what} in this folder cannot be loaded: {error}"
                    ) from error
            self._check_hub(name)
            try:
                return loader(transformers)
            except Exception as error:
                raise PersonaAgentsError(
                    f"{self.flag} {name}: the hub gives no {what} under this name: {error}"
                ) from error

    def _check_folder(self, folder: str) -> None:
        path = os.path.join(folder, "config.json")
        try:
            with open(path, encoding="utf-8") as file:
                kind = json.load(file).get("model_type")
        except FileNotFoundError:
            kind, reason = None, "it has no config.json"
        except (OSError, ValueError, AttributeError) as error:
            kind, reason = None, f"its config.json cannot be read ({error})"
        else:
            reason = f"its config.json describes a model of type {kind!r}"
        if kind is None or (self.model_types and kind not in self.model_types):
            raise PersonaAgentsError(
                f"{self.flag} {folder}: this folder holds no {self.name}: {reason}. Give a folder "
                f"saved from a {self.name} model, a hub name such as {self.by_language['en']}, or "
                f"{self._no_model}."
            )

    def _check_hub(self, name: str) -> None:
        import requests

        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        offline = os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")
        reason = "HF_HUB_OFFLINE is set" if offline else None
        if not offline:
            try:
                requests.head(endpoint, timeout=HUB_TIMEOUT)
            except requests.RequestException as error:
                reason = f"{endpoint} cannot be reached ({type(error).__name__})"
        if reason:
            raise PersonaAgentsError(
                f"{self.name} model {name!r} is not on this machine and cannot be downloaded: "
                f"{reason}. Give {self.flag} the folder of a {self.name} that you have, or "
                + (self.without or f"{self.flag} none for a small model without {self.name}")
                + "."
            )

    def reject_vocabulary(self, opt, model_size: int, dictionary_size: int) -> None:
        """Raise for a dictionary that is not the model's."""
        raise PersonaAgentsError(
            f"The dictionary has {dictionary_size} entries, the model of {self.flag} "
            f"{opt.get(self.option)} {model_size}. If {opt.get('dict_file')} belongs to another "
            "model, give --model-file or --dict-file a new path."
        )


@contextlib.contextmanager
def quiet():
    """transformers without its notes on missing weights and on torch's internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import transformers

        before = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        try:
            yield transformers
        finally:
            transformers.logging.set_verbosity(before)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
