"""Proof, on the loaded model itself, that slot and attention compute what transformers' own cache and attention compute.

First the way of reading (see prefill): chunks through transformers' own cache against one forward without any cache, and
whether a chunk sees the recurrent state before it. Some models of transformers 5.24 drop that state without a word, and
comparing two caches would never show it. Then the slot, with localkv's attention or the model's default one, against
transformers' own cache: two chunks, a decode and a rollback; logits must agree within TOLERANCE.

Run at the first load of each (identity, versions) and remembered, with how fast a model that passes reads. A model that fails with localkv's attention is tried with its
default attention; one that fails there too runs uncached. Never a refusal to chat. Thread: the engine's.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from localkv.engine.attention import AttentionRefused
from localkv.engine.live import Live
from localkv.engine.load import UNFIT, Loaded
from localkv.engine.pace import measure_stride
from localkv.engine.prefill import Reading, chunks
from localkv.engine.slot import Slot
from localkv.files import Files, replace_durably

TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.05, torch.bfloat16: 0.10}
"""Largest |difference| of two logit vectors, relative to the largest |logit|. bf16 paths differ by 0.3 to 0.6 where logits
reach 20 to 30 [measured]; a dropped sink or a wrong position moves them by their whole size."""


READING_TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.10, torch.bfloat16: 0.15}
"""The same for reading in chunks against reading everything at once; the better of two positions counts.

A router of experts that decides otherwise after other rounding moves one position; a lost state moves all by 0.2 to 1.
"""

DEFAULT_BLOCK_TOKENS = 256
"""For models without a layout."""

WORDS: dict[Reading, str] = {
    "chunks": "",
    "tokens": "transformers loses this model's state between chunks, so questions are read token by token, which is slow",
    "whole": "this model's state cannot be kept between forwards, so every token reads the whole conversation again",
}


class Verdict(msgspec.Struct, frozen=True):
    """What the self-test found: the attention to use, whether the slot may be used, and the measured difference."""

    attention: str
    cached: bool
    difference: float
    detail: str
    reading: Reading = "chunks"
    """How tokens are fed."""
    forward_seconds: float = 0.0
    token_seconds: float = 0.0
    """The pace.Stride of a model that is cached; 0: it is not known."""


def prove(loaded: Loaded, build: Callable[[], Slot], memory_file: Path, key: str) -> Verdict:
    """The verdict for this model; from `memory_file` if it was found before under `key` (identity and versions).

    `build` makes a slot; it is not called for a model without a layout, of which only the way of reading is found.
    """
    known = _remembered(memory_file)
    if key in known and (known[key].token_seconds or not known[key].cached):
        verdict = known[key]
        loaded.model.set_attn_implementation(verdict.attention)
        return verdict
    verdict = _examine(loaded, build)
    known[key] = verdict
    with contextlib.suppress(OSError):  # only time is lost: the next start runs the test again
        replace_durably(Files(), memory_file, msgspec.json.encode(known))
    return verdict


def _examine(loaded: Loaded, build: Callable[[], Slot]) -> Verdict:
    default: str = loaded.model.config._attn_implementation
    reading, why = _find_reading(loaded)
    if loaded.layout is None or reading == "whole":
        return Verdict(default, False, float("inf"), why, reading)
    wanted = [loaded.attention] if loaded.attention == default else [loaded.attention, default]
    expected = _reference(loaded, reading)
    detail = ""
    for path in wanted:
        try:
            loaded.model.set_attn_implementation(path)
            difference = _difference(_through_slot(loaded, build(), reading), expected)
        except AttentionRefused as error:
            detail = str(error)
            continue
        if difference <= TOLERANCE[_precision(loaded)]:
            stride = measure_stride(loaded, build(), _block_tokens(loaded))
            return Verdict(
                path, True, difference, "; ".join(filter(None, (detail, why))), reading, stride.forward_seconds,
                stride.token_seconds,
            )  # fmt: skip
        detail = f"{path} differs by {difference:.2g} of the largest logit"
    loaded.model.set_attn_implementation(default)
    return Verdict(default, False, float("inf"), detail, reading)


def _find_reading(loaded: Loaded) -> tuple[Reading, str]:
    """The fastest way of reading that is right, and a sentence about it unless it is the usual one."""
    expected = _at_once(loaded)
    limit = READING_TOLERANCE[_precision(loaded)]
    try:
        ways: tuple[Reading, ...] = ("chunks", "tokens") if _chunk_sees_state(loaded) else ("tokens",)
        for reading in ways:
            found = _reference(loaded, reading)
            # The first chunk starts from nothing: it is right in any case.
            if min(_difference([a], [b]) for a, b in zip(found[1:], expected[1:], strict=True)) <= limit:
                return reading, WORDS[reading]
    except UNFIT as error:
        return "whole", f"{WORDS['whole']} ({error})"
    return "whole", WORDS["whole"]


def _precision(loaded: Loaded) -> torch.dtype:
    """The dtype whose rounding counts: quantised weights compute in few bits whatever goes in."""
    known = loaded.section.quant == "none" and loaded.model.dtype in TOLERANCE
    return loaded.model.dtype if known else torch.bfloat16


def _block_tokens(loaded: Loaded) -> int:
    return loaded.layout.block_tokens if loaded.layout else DEFAULT_BLOCK_TOKENS


def _script(loaded: Loaded) -> tuple[list[int], list[int], int]:
    """(first chunk, second chunk, token to decode): fixed ids, spread over the vocabulary."""
    vocab = int(loaded.text_config.vocab_size)
    n = _block_tokens(loaded)
    ids = [(17 + 7919 * i) % vocab for i in range(n + n // 2 + 1)]
    return ids[:n], ids[n:-1], ids[-1]


def _at_once(loaded: Loaded) -> list[torch.Tensor]:
    """The logits after each part of the script, from one forward without a cache."""
    first, second, token = _script(loaded)
    ids = [*first, *second, token]
    with torch.inference_mode():
        out = loaded.model(_tensor(loaded, ids), use_cache=False, logits_to_keep=len(second) + 2)
    logits: torch.Tensor = out.logits[0]
    return [logits[-len(second) - 2], logits[-2], logits[-1]]


def _reference(loaded: Loaded, reading: Reading) -> list[torch.Tensor]:
    """The same from transformers' own cache, read as `reading` says."""
    cache = DynamicCache(config=loaded.text_config)
    return _in_parts(loaded, reading, lambda ids: _run(loaded, cache, ids))


def _in_parts(loaded: Loaded, reading: Reading, feed: Callable[[Sequence[int]], torch.Tensor]) -> list[torch.Tensor]:
    first, second, token = _script(loaded)
    return [feed(first), _feed_second(second, len(first), reading, feed), feed([token])]


def _feed_second(
    second: Sequence[int], start: int, reading: Reading, feed: Callable[[Sequence[int]], torch.Tensor]
) -> torch.Tensor:
    logits = [feed(second[a - start : b - start]) for a, b in chunks(start, start + len(second), start, reading)]
    return logits[-1]


def _chunk_sees_state(loaded: Loaded) -> bool:
    """Whether two tokens in one forward depend on the recurrent states before them: with NaN there, NaN must come out.

    Erasing the states instead would not do: in bf16 two tokens may come out the same without them.
    """
    first, second, _ = _script(loaded)
    cache = DynamicCache(config=loaded.text_config)
    _run(loaded, cache, first)
    states = _recurrent_states(cache)
    with torch.inference_mode():
        for state in states:
            state.fill_(float("nan"))
    return not states or bool(_run(loaded, cache, second[:2]).isnan().any())


def _recurrent_states(cache: Any) -> list[torch.Tensor]:
    layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
    states = [state for layer in layers for state in layer.recurrent_states.values() if state is not None]
    return [state for state in states if state.is_floating_point()]


def _through_slot(loaded: Loaded, slot: Slot, reading: Reading) -> list[torch.Tensor]:
    """The same through the slot; then back to the end of the first chunk by records, and the rest once more."""
    assert loaded.layout is not None
    first, second, token = _script(loaded)
    live = Live(loaded.model, slot, loaded.layout, loaded.device)
    live.reset()
    out = [live.feed(first)]
    block = torch.empty(loaded.layout.block_bytes, dtype=torch.uint8)
    state = torch.empty(loaded.layout.checkpoint_bytes(len(first)), dtype=torch.uint8)
    slot.save_block(0, block).wait()
    slot.save_checkpoint(len(first), state).wait()
    out += [_feed_second(second, len(first), reading, live.feed), live.feed([token])]
    live.reset()
    for region in (*slot.regions.slabs, *slot.regions.states):
        region.fill_(1)  # what is not copied back must not be there from before
    slot.load_block(0, block)
    slot.load_checkpoint(len(first), state)
    again = [_feed_second(second, len(first), reading, live.feed), live.feed([token])]
    if not all(torch.equal(a, b) for a, b in zip(again, out[1:], strict=True)):
        return [torch.full_like(logits, float("nan")) for logits in out]
    return out


def _run(loaded: Loaded, cache: DynamicCache, ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        out = loaded.model(_tensor(loaded, ids), cache=cache, use_cache=True, logits_to_keep=1)
    logits: torch.Tensor = out.logits[0, -1]
    return logits


def _tensor(loaded: Loaded, ids: Sequence[int]) -> torch.Tensor:
    return torch.tensor([ids], dtype=torch.long, device=loaded.device)


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
