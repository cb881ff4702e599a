"""Single rows through linear layers: the same numbers as torch's own layers, for every way in which a model may call them."""

import pytest
import torch
from torch import nn

from localkv.engine import linear

WIDTH, HEADS = 48, 16


class Attention(nn.Module):
    """Three layers that take one row, as transformers' attention names them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, 3 * HEADS, bias=bias)
        self.k_proj = nn.Linear(WIDTH, HEADS, bias=bias)
        self.v_proj = nn.Linear(WIDTH, HEADS, bias=bias)
        self.o_proj = nn.Linear(3 * HEADS, WIDTH, bias=bias)

    def forward(self, row, other=None):
        other = row if other is None else other
        return self.o_proj(self.q_proj(row)), self.k_proj(other), self.v_proj(other)


def build(bias: bool = False) -> tuple[Attention, Attention]:
    """The same layers twice: as they are, and taking single rows apart."""
    torch.manual_seed(3)
    plain, changed = Attention(bias).bfloat16(), Attention(bias).bfloat16()
    changed.load_state_dict(plain.state_dict())
    linear.install(changed)
    return plain, changed


def same(found, wanted) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, WIDTH), (1, WIDTH), (WIDTH,), (1, 5, WIDTH)])
def test_the_numbers_are_those_of_plain_layers(bias, shape):
    """Siblings share one product; each must get its own rows of it, with its own bias, in its own shape."""
    plain, changed = build(bias)
    row = torch.randn(shape).bfloat16()
    with torch.inference_mode():
        same(changed(row), plain(row))


def test_siblings_that_are_given_other_rows_compute_their_own():
    """In cross-attention keys and values come from another row than queries: the shared product is not theirs."""
    plain, changed = build()
    row, other = torch.randn(1, 1, WIDTH).bfloat16(), torch.randn(1, 1, WIDTH).bfloat16()
    with torch.inference_mode():
        same(changed(row, other), plain(row, other))


def test_a_tensor_that_holds_the_next_row_is_not_taken_for_the_last_one():
    """A model may write each token's row into the same tensor: the product of the token before must be gone by then."""
    plain, changed = build()
    row = torch.randn(1, 1, WIDTH).bfloat16()
    with torch.inference_mode():
        changed(row)
        row.copy_(torch.randn(1, 1, WIDTH))
        same(changed(row), plain(row))


def test_weights_keep_their_values_and_ties():
    """Weights move in memory; the embedding that is tied to the output layer moves along, or the model would take two copies."""
    model = nn.Module()
    model.embed, model.head, model.attention = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 64, bias=False), Attention(True)
    model.head.weight = model.embed.weight
    before = {name: value.clone() for name, value in model.state_dict().items()}
    linear.install(model)
    assert model.head.weight is model.embed.weight
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert (
        model.attention.q_proj.weight.data_ptr()
        < model.attention.k_proj.weight.data_ptr()
        < model.attention.v_proj.weight.data_ptr()
    )


def test_only_plain_layers_are_touched_and_all_of_them_come_back():
    """A quantised layer is another class with another product; after `remove` torch's own layers are back for a comparison."""

    class Quantised(nn.Linear):
        pass

    model = Attention(False)
    model.k_proj = Quantised(WIDTH, HEADS, bias=False)
    linear.install(model)
    assert type(model.k_proj) is Quantised
    assert type(model.q_proj) is linear.OneRowLinear
    linear.remove(model)
    assert [type(layer) for layer in (model.q_proj, model.v_proj, model.o_proj)] == [nn.Linear] * 3
