"""A linear map whose weights are laid out for the processor while a model replies."""

from __future__ import annotations

import torch
from torch import nn

CAN_PACK = (
    torch.__version__ >= (2, 4)
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


class Linear(nn.Linear):
    """
    ``nn.Linear`` that reads packed weights when a model replies or is evaluated on a CPU.

    The products of a decoding step have as few rows as there are replies. With the weights in the
    order in which oneDNN reads them, as torch's compiler lays them out for inference, such a
    product takes about half the time. The packed copy takes the memory of the weights once more
    and is made when first needed. Training, other devices, other precisions and autocast go the plain
    way.

    The copy is dropped as soon as a gradient may be wanted, in training mode, when the module is
    moved, and when autograd sees the weights change (``load_state_dict``). Writing to
    ``weight.data`` between two replies is not noticed.
    """

    _packed = None  # the weight, its version, the packed copy

    @classmethod
    def of(cls, plain: nn.Linear) -> Linear:
        """The same map with the same parameters."""
        linear = cls.__new__(cls)
        nn.Module.__init__(linear)
        linear.in_features, linear.out_features = plain.in_features, plain.out_features
        linear.weight, linear.bias = plain.weight, plain.bias
        return linear.train(plain.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (…, d_in) -> (…, d_out)."""
        if torch.is_grad_enabled():
            self._packed = None  # the weights may be about to learn
        if not self._packs(x):
            return super().forward(x)
        return torch.ops.mkldnn._linear_pointwise(x, self._weight(), self.bias, "none", [], "")

    def _packs(self, x: torch.Tensor) -> bool:
        """Whether this call may read the packed weights."""
        return (
            CAN_PACK
            and not self.training
            and not torch.is_grad_enabled()
            and x.device.type == self.weight.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
            and not self.weight.is_inference()  # has no version
        )

    def _weight(self) -> torch.Tensor:
        """The packed copy of the weights as they are now."""
        weight, version = self.weight, self.weight._version
        if self._packed is None or self._packed[0] is not weight or self._packed[1] != version:
            copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
            self._packed = weight, version, copy
        return self._packed[2]

    def train(self, mode: bool = True) -> Linear:
        """As torch's; the packed copy is dropped."""
        if mode:
            self._packed = None
        return super().train(mode)

    def _apply(self, *args, **kwargs):
        self._packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self):
        # what is packed can be neither saved nor copied
        return {**self.__dict__, "_packed": None}


def pack_linears(module: nn.Module) -> None:
    """Make every ``nn.Linear`` in another library's module a :class:`Linear`, parameters kept."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Linear.of(child))
