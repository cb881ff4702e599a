"""A tiny llama as a GGUF file: the tensors of a model folder under their GGUF names, with the tokenizer inside."""

from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(folder: Path, target: Path, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32) -> Path:
    """The llama in `folder` as `target`; matrices as `kind`."""
    config = AutoConfig.from_pretrained(folder)
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, folder)
    for name, tensor in load_file(folder / "model.safetensors").items():
        _add_tensor(writer, name, tensor, config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = [tokenizer.convert_ids_to_tokens(i) for i in range(len(tokenizer))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([f"{token[0]} {token[1]}" for token in tokens if len(token) == 2])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray, config, kind: gguf.GGMLQuantizationType) -> None:
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        target = f"blk.{layer}.{NAMES[part]}.weight"
        if part.endswith(("q_proj", "k_proj")):
            tensor = _interleave(tensor, config.num_attention_heads if "q_proj" in part else config.num_key_value_heads)
    else:
        target = f"{NAMES[stem]}.weight"
    if tensor.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(target, np.ascontiguousarray(tensor, dtype=np.float32))
        return
    packed = gguf.quants.quantize(np.ascontiguousarray(tensor, dtype=np.float32), kind)
    writer.add_tensor(target, packed, raw_dtype=kind)


def _interleave(tensor: np.ndarray, heads: int) -> np.ndarray:
    """GGUF stores the halves of each head's rotary dimensions interleaved."""
    shape = tensor.shape
    return tensor.reshape(heads, 2, shape[0] // heads // 2, shape[1]).swapaxes(1, 2).reshape(shape)
