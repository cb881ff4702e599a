"""Attention for one query token with the query heads folded into the sequence axis; everything else is transformers' own sdpa.

Why: on CPU one bf16 query with `enable_gqa` is 7 times slower than the same query laid out as [1, Hkv, group, D] (1.98 against
0.28 ms at 4,096 tokens); with AMX it is so from FOLDED_HEADS query heads for one key head on. Registered with transformers' attention and
mask interfaces under the name ATTENTION.

Used only for models that support sdpa and pass no keyword outside the allow-list. Without that rule gpt_oss would run and drop
its attention sinks without a word, and a comparison of two caches would not see it because both use the same function.

Masks at one query: a plain sliding mask over at most W rows is all true and left out; a chunked-attention mask (llama4) hides
rows and stays. The two are told apart by the keyword `sliding_window`, which only the former passes.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from localkv.errors import ModelError

ATTENTION = "localkv"

HAS_AMX = torch.cpu._is_amx_tile_supported()
FOLDED_HEADS = 4
"""With AMX: from how many query heads for one key head folding pays. Milliseconds per layer at 4,096 tokens, folded against
sdpa's own: 7 heads 0.19, 0.36; 4 heads 1.9, 2.7; 3 heads 0.39, 0.36; 2 heads 1.6, 1.7 (at 512 tokens 0.17, 0.12)."""

_HARMLESS = frozenset(
    {
        "cache", "past_key_values", "use_cache", "position_ids", "cache_position", "logits_to_keep", "is_causal",
        "sliding_window", "output_attentions", "output_hidden_states", "output_router_logits", "position_embeddings",
    }
)  # fmt: skip
"""Keywords that say nothing about the arithmetic of attention: masks and rows already carry it."""


class AttentionRefused(ModelError):
    """The model passes a keyword to its attention that changes the arithmetic in a way this function does not know."""

    def __init__(self, keyword: str) -> None:
        super().__init__(f"this model's attention needs {keyword}; transformers' default attention is used")
        self.keyword = keyword


def register() -> None:
    """Make ATTENTION known to transformers; harmless when repeated."""
    AttentionInterface.register(ATTENTION, folded_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def supports(model: PreTrainedModel) -> bool:
    """True if the model's own code says that sdpa is right for it."""
    return bool(getattr(model, "_supports_sdpa", False))


def folded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention output [1, T, H, D]; query [1, H, T, D], key and value [1, Hkv, rows, D]. Raises AttentionRefused."""
    _refuse_unknown(kwargs, dropout)
    batch, heads, n_queries, dim = query.shape
    groups = key.shape[1]
    if n_queries != 1 or not _folding_pays(query, heads // groups):
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    window = kwargs.get("sliding_window")
    if attention_mask is not None and window is not None and key.shape[2] <= window:
        attention_mask = None
    folded = query.view(batch, groups, heads // groups, dim)
    out = F.scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(batch, heads, 1, value.shape[-1]).transpose(1, 2).contiguous(), None


def _folding_pays(query: torch.Tensor, n_heads: int) -> bool:
    """Decided by the machine and the shapes alone: it decides the last bits."""
    return not HAS_AMX or query.dtype is not torch.bfloat16 or query.device.type != "cpu" or n_heads >= FOLDED_HEADS


def _refuse_unknown(kwargs: dict[str, Any], dropout: float) -> None:
    if dropout:
        raise AttentionRefused(f"dropout={dropout}")
    for keyword, given in kwargs.items():
        if given is not None and keyword not in _HARMLESS:
            raise AttentionRefused(keyword)
