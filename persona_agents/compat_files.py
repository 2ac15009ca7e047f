"""Mends of how ParlAI 1.7.2 reads and writes the files of a checkpoint, for every agent.

Installed by :mod:`persona_agents.compat`, which says how mends work.
"""

from __future__ import annotations

import os
import pickle

# Callables and classes that a file of weights may name. None of them runs code of the file.
_PLAIN = {
    "builtins": "set frozenset dict list tuple int float bool str bytes bytearray complex object",
    "_codecs": "encode",
    "collections": "OrderedDict defaultdict Counter",
    "copyreg": "_reconstructor",  # dict subclasses in old pickles
    "numpy": "ndarray dtype",
    "numpy.core.multiarray": "_reconstruct scalar",
    "numpy._core.multiarray": "_reconstruct scalar",
    "torch": "Size device",
    "torch.storage": "UntypedStorage TypedStorage _UntypedStorage _TypedStorage",
    "torch.nn.parameter": "Parameter",
    "torch._utils": "_rebuild_tensor _rebuild_tensor_v2 _rebuild_parameter",
    "parlai.core.opt": "Opt",
    "parlai.core.utils": "Opt",  # where it lay in 2019
    "parlai.utils.misc": "Opt",
}
_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def _is_plain(module: str, name: str) -> bool:
    module = _PYTHON_2.get(module, module)
    if name in _PLAIN.get(module, "").split():
        return True
    if module != "torch":
        return False
    import torch

    return name.endswith("Storage") or isinstance(getattr(torch, name, None), torch.dtype)


def mend_unpickling(parlai_pickle) -> None:
    """ParlAI unpickles whatever a checkpoint holds, code included.

    Here it reads tensors, plain data, numpy arrays and its own options, also those of checkpoints
    of years ago, which ``weights_only`` does not know. Can go when ParlAI loads weights only.
    """
    unpickler = parlai_pickle.Unpickler
    find_class = unpickler.find_class

    def find_plain_class(self, module, name):
        if module.startswith("apex."):  # ParlAI's stand-in; apex itself is not needed
            return parlai_pickle.FakeAPEXClass
        if not _is_plain(module, name):
            raise pickle.UnpicklingError(f"Unsupported global: {module}.{name}")
        return find_class(self, module, name)

    unpickler.find_class = find_plain_class


def mend_options_file(opt_module) -> None:
    """A cut-off ``.opt`` is a JSONDecodeError without a name, and another one is unpickled.

    Can go when ParlAI names the file and no longer reads the pickled options of 2018 as they come.
    """
    load = opt_module.Opt.load.__func__

    def load_named(cls, optfile):
        import parlai.utils.pickle

        from persona_agents.checkpoint import BrokenFileError  # here, since it imports torch

        opt_module.pickle = parlai.utils.pickle  # without code, see mend_unpickling
        try:
            return load(cls, optfile)
        except (ValueError, TypeError, EOFError, LookupError, AttributeError) as error:
            raise BrokenFileError(optfile, "options", error) from None
        except pickle.UnpicklingError:
            raise BrokenFileError(
                optfile, "options", "it is no JSON, and reading it could run foreign code"
            ) from None

    opt_module.Opt.load = classmethod(load_named)


def mend_dictionary_file(dict_module) -> None:
    """A broken ``.dict`` is read as far as it goes, or ends in an error that does not name it.

    Can go when ParlAI notices an empty or cut-off dictionary.
    """
    agent = dict_module.DictionaryAgent
    load = agent.load

    def load_whole(self, filename):
        from persona_agents.checkpoint import BrokenFileError

        try:
            with dict_module.PathManager.open(filename, "rb") as file:
                content = file.read()
            last_line = content[content.rfind(b"\n") + 1 :]
            if not content or (last_line and b"\t" in content and b"\t" not in last_line):
                raise ValueError("its last line is cut off" if content else "it is empty")
            return load(self, filename)
        except (OSError, ValueError) as error:
            raise BrokenFileError(filename, "a dictionary", error) from None

    agent.load = load_whole


def mend_checkpoint_files(torch_agent) -> None:
    """Name the file that cannot be read or does not fit; write options before weights.

    The weights' file is what makes a checkpoint exist. ParlAI writes its options after it, so a run
    that is killed in between leaves weights without the options to build their model. Can go when
    ParlAI writes the weights last and says which file is broken.
    """
    from persona_agents.checkpoint import read_checkpoint_of_parlai
    from persona_agents.errors import PersonaAgentsError

    agent = torch_agent.TorchAgent
    save = agent.save

    def load(self, path):
        states = read_checkpoint_of_parlai(path)
        if "model" in states:
            try:
                self.load_state_dict(states["model"])
            except RuntimeError as error:
                raise PersonaAgentsError(
                    f"{path} does not fit the model that the options and the {len(self.dict)} words "
                    f"of {self.opt.get('dict_file')} describe. {error}"
                ) from None
        if "optimizer" in states and hasattr(self, "optimizer"):
            self.optimizer.load_state_dict(states["optimizer"])
        return states

    def save_options_first(self, path=None):
        path = path or self.opt.get("model_file")
        if path and hasattr(self, "model"):
            if "://" not in path:
                os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            self.opt.save(f"{path}.opt")
        save(self, path)

    agent.load = load
    agent.save = save_options_first
