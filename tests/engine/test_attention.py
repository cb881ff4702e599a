"""localkv's attention: equal to transformers' own where it is used, and refused where it would be silently wrong."""

import pytest
import torch
from transformers import AttentionInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from localkv.commands.bench import tiny
from localkv.commands.bench.player import token_ids
from localkv.engine import attention
from localkv.engine.attention import AttentionRefused, folded_attention

MODULE = torch.nn.Module()
MODULE.is_causal = True
MODULE.num_key_value_groups = 2


def tensors(n_queries: int, n_rows: int, dim: int = 16, value_dim: int = 16):
    """query [1, 4, q, D], key and value [1, 2, rows, D]: two query heads to each key head."""
    torch.manual_seed(1)
    return torch.randn(1, 4, n_queries, dim), torch.randn(1, 2, n_rows, dim), torch.randn(1, 2, n_rows, value_dim)


def expected(query, key, value, mask, **kwargs):
    return sdpa_attention_forward(MODULE, query, key, value, mask, scaling=0.3, **kwargs)[0]


@pytest.mark.parametrize("value_dim", [16, 12])
def test_one_query_equals_sdpa(value_dim):
    """Folding query heads into the sequence axis changes the order of sums and nothing else, also where K and V differ."""
    query, key, value = tensors(1, 40, value_dim=value_dim)
    found = folded_attention(MODULE, query, key, value, None, scaling=0.3)[0]
    assert found.shape == (1, 1, 4, value_dim)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected(query, key, value, None))


def test_many_queries_are_left_to_sdpa():
    """A chunk goes through transformers' own function, bit for bit."""
    query, key, value = tensors(5, 40)
    mask = torch.ones(1, 1, 5, 40, dtype=torch.bool).tril(35)
    found = folded_attention(MODULE, query, key, value, mask, scaling=0.3)[0]
    assert torch.equal(found, expected(query, key, value, mask))


def test_a_mask_that_hides_rows_stays():
    """A chunked-attention mask (llama4) hides rows from a single query: leaving it out would attend across the chunk's edge."""
    query, key, value = tensors(1, 32)
    mask = torch.ones(1, 1, 1, 32, dtype=torch.bool)
    mask[..., :20] = False
    found = folded_attention(MODULE, query, key, value, mask, scaling=0.3)[0]
    torch.testing.assert_close(found, expected(query, key, value, mask))
    torch.testing.assert_close(found, expected(query, key[:, :, 20:], value[:, :, 20:], None))


def test_a_sliding_mask_is_left_out_only_within_the_window():
    """All rows of a sliding layer are visible to one query; with more rows than the window the mask must stay."""
    query, key, value = tensors(1, 32)
    hiding = torch.ones(1, 1, 1, 32, dtype=torch.bool)
    hiding[..., 0] = False
    inside = folded_attention(MODULE, query, key, value, hiding, scaling=0.3, sliding_window=32)[0]
    torch.testing.assert_close(inside, expected(query, key, value, None))
    beyond = folded_attention(MODULE, query, key, value, hiding, scaling=0.3, sliding_window=31)[0]
    torch.testing.assert_close(beyond, expected(query, key, value, hiding))


@pytest.mark.parametrize("keyword", ["s_aux", "softcap", "position_bias", "something_new"])
@pytest.mark.parametrize("n_queries", [1, 4])
def test_unknown_keywords_are_refused(keyword, n_queries):
    """A keyword that is not known to be harmless may change the arithmetic: it is refused by name, never dropped."""
    query, key, value = tensors(n_queries, 40)
    with pytest.raises(AttentionRefused, match=keyword) as caught:
        folded_attention(MODULE, query, key, value, None, scaling=0.3, **{keyword: torch.ones(4)})
    assert caught.value.keyword == keyword
    folded_attention(MODULE, query, key, value, None, scaling=0.3, **{keyword: None}, use_cache=True)


def test_dropout_is_refused():
    """Dropout means that the model is being trained."""
    query, key, value = tensors(1, 40)
    with pytest.raises(AttentionRefused, match="dropout"):
        folded_attention(MODULE, query, key, value, None, dropout=0.1)


def logits(model, ids, path: str) -> list[torch.Tensor]:
    """After a chunk, and after each of some single tokens that cross windows and chunks."""
    model.set_attn_implementation(path)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        out = [model(torch.tensor([ids[:20]]), cache=cache, use_cache=True).logits[0, -1]]
        out += [model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1] for token in ids[20:]]
    return out


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3_text", "llama4_text", "deepseek_v3", "falcon_h1"])
def test_models_that_support_sdpa_say_the_same(name):
    """Token by token across several windows and attention chunks, localkv's attention gives what the default one gives."""
    attention.register()
    model = tiny.build_model(name)
    assert attention.supports(model)
    ids = token_ids(20 + 3 * tiny.WINDOW, 1)
    for found, wanted in zip(logits(model, ids, attention.ATTENTION), logits(model, ids, "sdpa"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "keyword"), [("gpt_oss", "s_aux"), ("gemma2", "softcap")])
def test_models_that_would_be_wrong_are_not_given_it(name, keyword):
    """gpt_oss takes any function and would lose its sinks without a word; gemma2 its soft cap. Two locks: both must hold."""
    attention.register()
    model = tiny.build_model(name)
    assert not attention.supports(model)
    with pytest.raises(AttentionRefused, match=keyword):
        logits(model, token_ids(22, 1), attention.ATTENTION)


def test_the_sinks_trap_is_real():
    """Without the allow-list gpt_oss runs and says something else, and a comparison of two caches does not see it."""
    attention.register()

    def careless(module, query, key, value, mask, **kwargs):
        return sdpa_attention_forward(module, query, key, value, mask, **{**kwargs, "s_aux": None})

    AttentionInterface.register("careless", careless)
    model = tiny.build_model("gpt_oss")
    ids = token_ids(60, 2)
    right, wrong = logits(model, ids, "eager"), logits(model, ids, "careless")
    assert (right[-1] - wrong[-1]).abs().max() > 0.1 * right[-1].abs().max()


@pytest.mark.parametrize("heads", [4, 8, 16])
@pytest.mark.parametrize("has_amx", [False, True])
def test_whether_heads_are_folded_changes_no_more_than_rounding(monkeypatch, has_amx, heads):
    """Folding is chosen by processor and shapes; on either side of the choice the answer is that of sdpa."""
    monkeypatch.setattr(attention, "HAS_AMX", has_amx)
    torch.manual_seed(2)
    query, key, value = (torch.randn(1, n, rows, 16).bfloat16() for n, rows in ((heads, 1), (2, 40), (2, 40)))
    module = torch.nn.Module()
    module.is_causal, module.num_key_value_groups = True, heads // 2
    found = folded_attention(module, query, key, value, None, scaling=0.3)[0]
    wanted = sdpa_attention_forward(module, query, key, value, None, scaling=0.3)[0]
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)
