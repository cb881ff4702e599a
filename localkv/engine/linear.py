"""One row through a linear layer as a matrix-vector product, on CPUs where the matrix product is the slow way.

Why: with AMX, oneDNN multiplies a single bf16 row in half the speed of a plain matrix-vector product (weights are laid out anew
at each call): 89 against 47 us for 1536 x 576 on two cores [measured]. Decoding is little else than such rows. On other CPUs both
are alike, and nothing is changed. Which one runs follows from the machine alone, never from a measurement at start: it decides
the last bits, so it is part of the fingerprint; the self-test runs with it.

Knows torch modules; thread: the engine's. Only plain torch.nn.Linear is touched: quantised layers are other classes.
"""

import torch
from torch import nn

ONE_ROW = "mv"
MATRIX = "mm"


class OneRowLinear(nn.Linear):
    """nn.Linear that takes a single row by torch.mv and everything else as before."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that torch gives it
        """[..., K] -> [..., N]."""
        if input.numel() != self.in_features:
            return super().forward(input)
        row = torch.mv(self.weight, input.reshape(-1))
        return (row if self.bias is None else row + self.bias).view(*input.shape[:-1], self.out_features)


def wanted(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether single rows are faster by torch.mv for these weights on this machine."""
    return device.type == "cpu" and dtype is torch.bfloat16 and torch.cpu._is_amx_tile_supported()


def install(model: nn.Module) -> None:
    """Make every plain linear layer of `model` take single rows by torch.mv."""
    _swap(model, nn.Linear, OneRowLinear)


def remove(model: nn.Module) -> None:
    """Undo `install`: the layers are torch's own again."""
    _swap(model, OneRowLinear, nn.Linear)


def _swap(model: nn.Module, old: type[nn.Module], new: type[nn.Module]) -> None:
    # The class and not the module is exchanged: weights, hooks and tied parameters stay what they are.
    for module in model.modules():
        if type(module) is old:
            module.__class__ = new
