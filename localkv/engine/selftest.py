"""Proof, on the loaded model itself, that slot and attention compute what transformers' own cache and attention compute.

Two chunks, a decode and a rollback through both; logits must agree within TOLERANCE. Run at the first load of each (identity,
versions) and remembered. A model that fails with localkv's attention is tried with its default attention; one that fails
there too runs uncached. Never a refusal to chat. Thread: the engine's.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from transformers import DynamicCache, PreTrainedModel

from localkv.engine.attention import AttentionRefused
from localkv.engine.live import Live
from localkv.engine.load import Loaded
from localkv.engine.slot import Slot
from localkv.files import Files, replace_durably

TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.05, torch.bfloat16: 0.10}
"""Largest |difference| of two logit vectors, relative to the largest |logit|. bf16 paths differ by 0.3 to 0.6 where logits
reach 20 to 30 [measured]; a dropped sink or a wrong position moves them by their whole size."""


class Verdict(msgspec.Struct, frozen=True):
    """What the self-test found: the attention to use, whether the slot may be used, and the measured difference."""

    attention: str
    cached: bool
    difference: float
    detail: str


def prove(loaded: Loaded, build: Callable[[], Slot], memory_file: Path, key: str) -> Verdict:
    """The verdict for this model; from `memory_file` if it was found before under `key` (identity and versions)."""
    known = _remembered(memory_file)
    if key in known:
        verdict = known[key]
        loaded.model.set_attn_implementation(verdict.attention)
        return verdict
    verdict = _examine(loaded, build)
    known[key] = verdict
    try:
        replace_durably(Files(), memory_file, msgspec.json.encode(known))
    except OSError:
        # Only time is lost: the next start runs the test again.
        return verdict
    return verdict


def _examine(loaded: Loaded, build: Callable[[], Slot]) -> Verdict:
    default: str = loaded.model.config._attn_implementation
    wanted = [loaded.attention] if loaded.attention == default else [loaded.attention, default]
    expected = _reference(loaded)
    detail = ""
    for path in wanted:
        try:
            loaded.model.set_attn_implementation(path)
            difference = _difference(_through_slot(loaded, build()), expected)
        except AttentionRefused as error:
            detail = str(error)
            continue
        if difference <= TOLERANCE.get(loaded.model.dtype, TOLERANCE[torch.bfloat16]):
            return Verdict(path, True, difference, detail)
        detail = f"{path} differs by {difference:.2g} of the largest logit"
    loaded.model.set_attn_implementation(default)
    return Verdict(default, False, float("inf"), detail)


def _script(loaded: Loaded) -> tuple[list[int], list[int], int]:
    """(first chunk, second chunk, token to decode): fixed ids, spread over the vocabulary."""
    assert loaded.layout is not None
    vocab = int(loaded.text_config.vocab_size)
    n = loaded.layout.block_tokens
    ids = [(17 + 7919 * i) % vocab for i in range(n + n // 2 + 1)]
    return ids[:n], ids[n:-1], ids[-1]


def _reference(loaded: Loaded) -> list[torch.Tensor]:
    first, second, token = _script(loaded)
    cache = DynamicCache(config=loaded.text_config)
    return [_run(loaded.model, cache, part) for part in (first, second, [token])]


def _through_slot(loaded: Loaded, slot: Slot) -> list[torch.Tensor]:
    """The same through the slot; then back to the end of the first chunk by records, and the rest once more."""
    assert loaded.layout is not None
    first, second, token = _script(loaded)
    live = Live(loaded.model, slot, loaded.layout, loaded.device)
    live.reset()
    out = [live.feed(first)]
    block = torch.empty(loaded.layout.block_bytes, dtype=torch.uint8)
    state = torch.empty(loaded.layout.checkpoint_bytes(len(first)), dtype=torch.uint8)
    slot.save_block(0, block)
    slot.save_checkpoint(len(first), state)
    out += [live.feed(second), live.feed([token])]
    live.reset()
    slot.load_block(0, block)
    slot.load_checkpoint(len(first), state)
    again = [live.feed(second), live.feed([token])]
    if not all(torch.equal(a, b) for a, b in zip(again, out[1:], strict=True)):
        return [torch.full_like(logits, float("nan")) for logits in out]
    return out


def _run(model: PreTrainedModel, cache: DynamicCache, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        out = model(torch.tensor([ids], device=model.device), cache=cache, use_cache=True, logits_to_keep=1)
    logits: torch.Tensor = out.logits[0, -1]
    return logits


def _difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative difference; infinite for anything that is not a number."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        scale = float(b.float().abs().max())
        value = float((a.float() - b.float()).abs().max()) / (scale or 1.0)
        worst = max(worst, value if value == value else float("inf"))  # noqa: PLR0124 - NaN is not equal to itself
    return worst


def _remembered(memory_file: Path) -> dict[str, Verdict]:
    try:
        return msgspec.json.decode(memory_file.read_bytes(), type=dict[str, Verdict])
    except (OSError, msgspec.DecodeError):
        return {}
