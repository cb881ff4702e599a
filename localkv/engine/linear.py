"""One row through linear layers as matrix-vector products, on CPUs where the matrix product is the slow way.

Why: with AMX, oneDNN multiplies a single bf16 row in half the speed of a plain matrix-vector product (weights are laid out anew
at each call): 89 against 47 us for 1536 x 576 on two cores [measured]. Decoding is little else than such rows, so there

    rows      a single row goes through torch.mv, everything else as before
    siblings  layers that take the same row (q, k, v; gate, up) lie one below the other in memory and are one product: small
              ones alone do not keep two threads busy (192 x 576: 5 GB/s, 960 x 576: 12 GB/s)
    pages     the weights lie in huge pages where the system gives them (a pass over 270 MB: 30 -> 24 ms)

On other CPUs nothing is changed. Which one runs follows from the machine alone, never from a measurement at start: it decides
the last bits, so it is part of the fingerprint; the self-test runs with it.

Knows torch modules; thread: the engine's. Only plain torch.nn.Linear is touched: quantised layers are other classes.
"""

import mmap
from collections.abc import Iterator, Sequence

import torch
from torch import nn

ONE_ROW = "rows"
MATRIX = "mm"

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that transformers' models feed the same row, in the order in which they are called."""

HUGE_PAGE = 2 << 20


class OneRowLinear(nn.Linear):
    """nn.Linear that takes a single row by torch.mv and everything else as before."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that torch gives it
        """[..., K] -> [..., N]."""
        if input.numel() != self.in_features:
            return super().forward(input)
        row = torch.mv(self.weight, input.reshape(-1))
        return (row if self.bias is None else row + self.bias).view(*input.shape[:-1], self.out_features)


class SharedRow:
    """The product of one row with the weights of all siblings, computed when the first of them asks."""

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight`: [sum of N, K], of which the siblings' weights are views."""
        self.weight = weight
        self._input: torch.Tensor | None = None
        self._row = weight.new_empty(0)

    def of(self, row: torch.Tensor) -> torch.Tensor:
        """[sum of N] for this row [..., K]. Kept for the siblings, which are given the same tensor."""
        if self._input is not row:
            self._row, self._input = torch.mv(self.weight, row.reshape(-1)), row
        return self._row

    def let_go(self) -> None:
        """The last sibling has asked: a row that comes next is another one, whatever tensor holds it."""
        self._input = None


class SiblingLinear(nn.Linear):
    """nn.Linear whose single rows are part of a product with its siblings'."""

    shared: SharedRow
    rows: slice
    is_last: bool

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that torch gives it
        """[..., K] -> [..., N]."""
        if input.numel() != self.in_features:
            return super().forward(input)
        row = self.shared.of(input)[self.rows]
        if self.is_last:
            self.shared.let_go()
        return (row if self.bias is None else row + self.bias).view(*input.shape[:-1], self.out_features)


class Pages:
    """Memory for weights that asks the system for huge pages. It lives as long as a tensor in it."""

    def __init__(self, n_bytes: int) -> None:
        region = mmap.mmap(-1, n_bytes + 2 * HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            region.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = torch.frombuffer(region, dtype=torch.uint8)
        self._taken = -self._bytes.data_ptr() % HUGE_PAGE

    def copy(self, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of `weights` below one another: [sum of N, K]."""
        n_rows, width, dtype = sum(weight.shape[0] for weight in weights), weights[0].shape[1], weights[0].dtype
        n_bytes = n_rows * width * dtype.itemsize
        room = self._bytes[self._taken : self._taken + n_bytes]
        self._taken += n_bytes
        return torch.cat(list(weights), out=room.view(dtype).view(n_rows, width))


def wanted(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether single rows are faster by torch.mv for these weights on this machine."""
    return device.type == "cpu" and dtype is torch.bfloat16 and torch.cpu._is_amx_tile_supported()


def install(model: nn.Module) -> None:
    """Make every plain linear layer of `model` take single rows by torch.mv. Moves weights; their values stay."""
    plain = [module for module in model.modules() if type(module) is nn.Linear]
    pages = Pages(sum(layer.weight.numel() * layer.weight.element_size() for layer in plain))
    for family in _families(model):
        _join(family, pages)
    for layer in plain:
        if type(layer) is nn.Linear:
            _set_weight(layer, pages.copy([layer.weight.data]))
            # The class and not the module is exchanged: hooks and tied parameters stay what they are.
            layer.__class__ = OneRowLinear


def remove(model: nn.Module) -> None:
    """Undo `install`: the layers are torch's own again. Weights stay where they were moved."""
    for module in model.modules():
        if type(module) in (OneRowLinear, SiblingLinear):
            module.__class__ = nn.Linear


def _families(model: nn.Module) -> Iterator[list[nn.Linear]]:
    """Plain linear layers under one parent that take the same row."""
    for parent in model.modules():
        for names in SIBLINGS:
            found = [getattr(parent, name, None) for name in names]
            family = [layer for layer in found if isinstance(layer, nn.Linear) and type(layer) is nn.Linear]
            if len(family) == len(names) and len({(layer.in_features, layer.weight.dtype) for layer in family}) == 1:
                yield family


def _join(family: Sequence[nn.Linear], pages: Pages) -> None:
    """Lay the weights of `family` out below one another and make its layers siblings."""
    together = pages.copy([layer.weight.data for layer in family])
    shared, first = SharedRow(together), 0
    for layer in family:
        rows = slice(first, first + layer.out_features)
        _set_weight(layer, together[rows])
        layer.__class__ = SiblingLinear
        assert isinstance(layer, SiblingLinear)
        layer.shared, layer.rows, layer.is_last = shared, rows, layer is family[-1]
        first = rows.stop


def _set_weight(layer: nn.Linear, weight: torch.Tensor) -> None:
    # The parameter stays the object it is: an embedding may be tied to it.
    layer.weight.data = weight
