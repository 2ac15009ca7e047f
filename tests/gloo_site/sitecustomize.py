"""On the path of `parlai multiprocessing_train`, this lets it run without a GPU: gloo for NCCL.

ParlAI names a GPU to whatever distributes the work. Python imports this file at the start of each
process, so the workers that the command spawns are covered too.
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

from tests.gloo import OnCPU

torch.cuda.device_count = lambda: 2
torch.cuda.set_device = lambda device: None
torch.cuda.init = lambda: None
torch.cuda.ByteTensor = lambda size: torch.zeros(size, dtype=torch.uint8)
torch.Tensor.cuda = lambda self, *args, **kwargs: self

_init_process_group, _join = dist.init_process_group, Join.__init__


def _with_gloo(backend=None, **options):
    return _init_process_group(backend="gloo", **options)


def _join_on_cpu(self, *args, **kwargs):
    _join(self, *args, **kwargs)
    self._device = torch.device("cpu")


dist.init_process_group = _with_gloo
# Once the first worker has left, gloo may keep the second waiting for ever: all leave together.
dist.destroy_process_group = dist.barrier
Join.__init__ = _join_on_cpu
torch.nn.parallel.DistributedDataParallel = OnCPU
