"""Several workers on one CPU, for tests: ParlAI's distributed training with gloo in place of NCCL.

ParlAI gathers objects through CUDA tensors and names a GPU to DistributedDataParallel; both are
replaced inside the worker processes.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


class OnCPU(torch.nn.parallel.DistributedDataParallel):
    def __init__(self, module, device_ids=None, **options):
        super().__init__(module, **options)


def _all_gather_list(data):
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    return gathered


def _work(function, arguments, rank, count, folder) -> None:
    torch.nn.parallel.DistributedDataParallel = OnCPU
    for name, module in list(sys.modules.items()):
        if name.startswith("parlai.") and hasattr(module, "all_gather_list"):
            module.all_gather_list = _all_gather_list
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count
    )
    torch.save(function(rank, *arguments), f"{folder}/result{rank}")
    dist.barrier()
    dist.destroy_process_group()


def run_workers(function, *arguments, count: int = 2, seconds: float = 120) -> list:
    """What `function(rank, *arguments)` returns in each of `count` processes; tensors and data."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_work, args=(function, arguments, rank, count, folder))
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds)
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            process.kill()
        assert not alive, "workers wait for each other"
        assert [process.exitcode for process in processes] == [0] * count
        return [torch.load(Path(folder) / f"result{rank}") for rank in range(count)]
