"""Mends of how ParlAI 1.7.2 starts the workers of ``parlai multiprocessing_train``.

Installed by :mod:`persona_agents.compat`, which says how mends work.
"""

from __future__ import annotations

import importlib


def train_worker(*args, **kwargs):
    """
    One worker. It is sent to its process by name, so that process imports this package first.

    ParlAI's own function would begin in a process that knows neither our tasks nor the mends.
    """
    importlib.import_module("parlai.scripts.multiprocessing_train")  # is mended: sets `parlais`
    return train_worker.parlais(*args, **kwargs)


def mend_workers(multiprocessing_train) -> None:
    """Workers are new processes that have not run what the ``parlai`` command runs first, and none
    of them, the first included, may build a dictionary.

    Here workers know our tasks and mends, and the dictionary is built before they start. Can go
    when ParlAI's command passes on what it has imported, and builds the dictionary first.
    """
    launch_and_train = multiprocessing_train.launch_and_train
    train_worker.parlais = multiprocessing_train.multiprocess_train
    multiprocessing_train.multiprocess_train = train_worker

    def launch_with_dictionary(opt, port=None):
        from parlai.scripts.build_dict import build_dict

        if opt.get("model_file") or opt.get("dict_file"):
            opt["dict_file"] = opt.get("dict_file") or opt["model_file"] + ".dict"
            build_dict(opt, skip_if_built=True)
        return launch_and_train(opt, port)

    multiprocessing_train.launch_and_train = launch_with_dictionary
