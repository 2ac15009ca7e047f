"""
Half precision, by torch's autocast: ``--fp16`` and ``--bf16``.

The weights stay float32, only computation is shortened. So a checkpoint, and the dictionary that
belongs to it, are the same in every precision. (ParlAI's own half precision halves the weights,
pads the dictionary, and knows neither two groups of parameters nor AdamW.)
"""

from __future__ import annotations

import torch
from parlai.utils.misc import warn_once

from persona_agents.errors import PersonaAgentsError


def add_cmdline_args(group) -> None:
    """``--bf16``; ``--fp16`` is ParlAI's."""
    group.add_argument(
        "--bf16",
        type="bool",
        default=False,
        help="Compute in bfloat16, on a GPU or CPU; weights stay float32. (--fp16 likewise in "
        "float16, on a GPU only.)",
    )


def device_of(opt) -> str:
    """Where the agent runs, 'cuda' or 'cpu'."""
    return "cuda" if torch.cuda.is_available() and not opt.get("no_cuda") else "cpu"


def choose(opt, device: str) -> torch.dtype | None:
    """
    The type to compute in, None for that of the weights.

    :param device: 'cuda' or 'cpu'.
    """
    if opt.get("fp16_impl", "safe") != "safe" or opt.get("force_fp16_tokens"):
        raise PersonaAgentsError(
            "--fp16-impl and --force-fp16-tokens do not work with this agent, whose --fp16 is torch's "
            "autocast: leave them out."
        )
    if opt.get("fp16") and opt.get("bf16"):
        raise PersonaAgentsError("--fp16 and --bf16 exclude each other: leave one out.")
    if opt.get("fp16"):
        if device == "cuda":
            return torch.float16
        if (opt.get("override") or {}).get("fp16"):
            raise PersonaAgentsError(
                "--fp16 works only on a GPU, and there is none. Use --bf16 true, which works on a "
                "CPU too, or leave the option out."
            )
        warn_once("This model was trained with --fp16; without a GPU it computes in float32.")
    if opt.get("bf16"):
        if device == "cuda" and not torch.cuda.is_bf16_supported():
            raise PersonaAgentsError(
                "--bf16: this GPU cannot compute in bfloat16. Use --fp16 true instead."
            )
        return torch.bfloat16
    return None


class Precision:
    """
    Runs a model in half precision, and scales the loss where float16 would lose small gradients.

    :param dtype: torch.float16, torch.bfloat16, or None for plain float32.
    :param device: 'cuda' or 'cpu'.
    """

    def __init__(self, dtype: torch.dtype | None, device: str):
        self.dtype, self.device = dtype, device
        self.scaler = None
        if dtype == torch.float16:
            scaler = getattr(torch.amp, "GradScaler", None)  # since torch 2.3
            self.scaler = scaler(device) if scaler else torch.cuda.amp.GradScaler()

    def autocast(self):
        """The context to compute a forward pass in."""
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to go backward from."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer) -> None:
        """
        Bring gradients back to their size, before they are clipped.

        The optimiser's next step then goes through the scaler, which leaves it out when a gradient
        is infinite, and adapts the scale.
        """
        if self.scaler is None:
            return
        self.scaler.unscale_(optimizer)
        step = optimizer.step

        def scaled_step():
            optimizer.step = step
            self.scaler.step(optimizer)
            self.scaler.update()

        optimizer.step = scaled_step

    def state_dict(self) -> dict | None:
        """What a resumed training needs to know."""
        return None if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict | None) -> None:
        """Go on with a saved scale; training may have been in another precision before."""
        if state and self.scaler is not None:
            self.scaler.load_state_dict(state)
