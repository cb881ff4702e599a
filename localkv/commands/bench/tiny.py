"""Tiny models of many architectures, randomly initialised, saved as ordinary model folders that the product opens by itself.

Each is a few layers with a window of 32 tokens and a vocabulary of 512: every kind of layer of its big siblings is there, and a
forward takes milliseconds. Seeds are fixed. Weight matrices are multiplied by SCALE: at transformers' own initialisation the
residual stream drowns attention, and a lost token would hardly move the logits. Imports torch. Thread: main.
"""

import string
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

VOCABULARY = 512
WINDOW = 32
SCALE = 4.0
SINK = 2.0
"""Value of every attention sink: large enough that dropping it moves the logits by their whole size."""

_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip
_HEAD = {**_BASE, "head_dim": 16}
_MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2}
_GATED = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _BASE,
    "qwen3": _HEAD,
    "phi3": _BASE,
    "granite": _BASE,
    "mistral": {**_BASE, "sliding_window": WINDOW},
    "gemma2": {**_HEAD, **_MIXED},
    "gemma3_text": {**_HEAD, **_MIXED},
    "gemma3n_text": {
        **_HEAD, **_MIXED, "num_kv_shared_layers": 2, "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 16, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 4, "laurel_rank": 8,
    },
    "gemma4_text": {
        **_HEAD, **_MIXED, "num_kv_shared_layers": 2, "global_head_dim": 32, "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "gpt_oss": {**_HEAD, **_MIXED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {
        **_HEAD, "num_local_experts": 2, "num_experts_per_tok": 1, "attention_chunk_size": WINDOW,
        "intermediate_size_mlp": 128, "moe_layers": [],
    },
    "deepseek_v3": {
        **_BASE, "num_hidden_layers": 2, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "n_group": 2,
        "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 32,
    },
    "qwen3_next": {
        **_HEAD, **_GATED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "qwen3_5_text": {**_HEAD, **_GATED},
    "falcon_h1": {**_BASE, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8},
    "lfm2": {**_BASE, "layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {
        "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 16, "state_size": 16,
        "n_groups": 2, "expand": 2, "chunk_size": 16,
    },
    "jamba": {
        **_BASE, "num_experts": 2, "mamba_d_state": 8, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1,
    },
    "nemotron_h": {
        **_HEAD, "hybrid_override_pattern": "M*M-", "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 8,
        "n_groups": 2, "chunk_size": 16,
    },
}  # fmt: skip
"""transformers' configs by model type."""

ARCHITECTURES = tuple(CONFIGS)


def build_model(name: str, dtype: torch.dtype = torch.float32, **changes: Any) -> PreTrainedModel:
    """A model of architecture `name`, always the same one; `changes` replace fields of its config."""
    # No token ends an answer, so that every conversation is as long as it is meant to be.
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(name, **{**CONFIGS.get(name, _BASE), **special, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter, value in model.named_parameters():
            if value.dim() > 1:
                value.mul_(SCALE)
            if "sinks" in parameter:
                value.fill_(SINK)
    model.eval()
    return model


def make_model(name: str, folder: Path, *, shard_bytes: str = "50GB", **changes: Any) -> Path:
    """That model in fp32 as a model folder with a tokenizer. Returns `folder`."""
    transformers.utils.logging.disable_progress_bar()
    build_model(name, **changes).save_pretrained(folder, max_shard_size=shard_bytes)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A BPE tokenizer of VOCABULARY tokens: printable ASCII, and pairs of lower-case letters. No special tokens."""
    letters = [*map(chr, range(32, 127)), "\n"]
    pairs = [(a, b) for a in string.ascii_lowercase for b in string.ascii_lowercase][: VOCABULARY - len(letters) - 1]
    tokens = ["<unk>", *letters, *(a + b for a, b in pairs)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token="<unk>"))  # noqa: S106 - a token, not a secret
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")  # noqa: S106
