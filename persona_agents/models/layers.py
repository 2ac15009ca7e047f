"""Linear maps and dropout: faster on a CPU than torch's own, torch's own elsewhere."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.function import once_differentiable

HAS_ONEDNN = (
    torch.__version__ >= (2, 4)
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x W^T + b by oneDNN, as torch's compiler calls it: (…, d_in) -> (…, d_out)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class Product(torch.autograd.Function):
    """:func:`product` of a matrix, with its gradient: x (N, d_in) -> (N, d_out)."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            product(grad, weight.t(), None) if for_x else None,
            grad.t() @ x if for_weight else None,  # torch's is faster here
            grad.sum(dim=0) if for_bias else None,
        )


class Linear(nn.Linear):
    """
    ``nn.Linear`` computed by oneDNN in float32 on a CPU; everything else goes torch's way.

    A training step gains some per cent. When nothing is to be learned the weights are packed: the
    products of a decoding step have as few rows as there are replies, and with the weights in the
    order in which they are read such a product takes about half the time. The packed copy is made
    when first needed and takes the memory of the weights once more.

    It is dropped by ``train()``, by a pass that keeps gradients, when the module is moved, and when
    autograd sees the weights change (``load_state_dict``). A fused optimiser's step it does not see,
    nor writing to ``weight.data``: between two replies, with none of those, they go unnoticed.
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
        learns = torch.is_grad_enabled()
        if learns:
            self._packed = None
        if not self._fits(x):
            return super().forward(x)
        if learns:
            # shaped out here: what it returns may then be written to in place
            rows = Product.apply(x.reshape(-1, self.in_features), self.weight, self.bias)
            return rows.view(*x.shape[:-1], self.out_features)
        return product(x, self.weight if self.training else self._packed_weight(), self.bias)

    def _fits(self, x: torch.Tensor) -> bool:
        """Whether oneDNN is to compute this call."""
        return (
            HAS_ONEDNN
            and x.device.type == self.weight.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
            and x.size(-1) == self.in_features  # torch has the better message
            and not self.weight.is_inference()  # has no version
            and not torch.compiler.is_compiling()  # the compiler chooses by itself
            and not torch.jit.is_tracing()
        )

    def _packed_weight(self) -> torch.Tensor:
        """The packed copy of the weights as they are now."""
        weight, version = self.weight, self.weight._version
        if self._packed is None or self._packed[0] is not weight or self._packed[1] != version:
            copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
            self._packed = weight, version, copy
        return self._packed[2]

    def train(self, mode: bool = True) -> Linear:
        """As torch's. Optimisers may write to ``weight.data``, so nothing packed stays."""
        if mode:
            self._packed = None
        return super().train(mode)

    def _apply(self, *args, **kwargs):
        self._packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self):
        # what is packed can be neither saved nor copied
        return {**self.__dict__, "_packed": None}


class Dropout(nn.Dropout):
    """
    ``nn.Dropout`` that draws its mask in a third of the time on a CPU.

    Torch draws one number for each element there; here 64 random bits serve four. The probability
    is rounded to 1 / 65,536, and the values that are kept are scaled by what it is then.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x of any shape -> the same shape."""
        dropped = round(self.p * 65_536)  # of the values that 16 bits have
        if not self.training or x.device.type != "cpu" or not 0 < dropped < 65_536:
            return super().forward(x)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        kept = bits.ge(dropped - 32_768).to(x.dtype)
        return x * kept.mul_(65_536 / (65_536 - dropped))


FASTER = {nn.Linear: Linear.of, nn.Dropout: lambda plain: Dropout(plain.p).train(plain.training)}


def use_fast_layers(module: nn.Module) -> None:
    """Make every ``nn.Linear`` and ``nn.Dropout`` in another library's module one of these."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in FASTER:
                setattr(parent, name, FASTER[type(child)](child))
