"""`bench decode`: tokens per second of a turn against `model.generate` with its defaults, on the same weights, in turns."""

import statistics
import time
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from localkv.commands.bench import Say, bed, bed_home
from localkv.engine import linear
from localkv.runtime import Runtime

CONTEXTS = (512, 4096)
TOKENS = 48
ROUNDS = 5


class Clock(BaseStreamer):
    """Notes when each token of `generate` arrives."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _value: torch.Tensor) -> None:
        """Called once with the prompt, then with each token."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing to do."""

    @property
    def tokens_per_second(self) -> float:
        """Of decoding: the prompt and the first token are not counted."""
        arrived = self.times[1:]
        return (len(arrived) - 1) / (arrived[-1] - arrived[0])


def measure(say: Say) -> list[dict[str, Any]]:
    """One row per context length: bf16, greedy."""
    with bed_home.scratch_home() as home, bed.open_runtime(home) as runtime:
        return [_measure_context(runtime, n, say) for n in CONTEXTS]


def _measure_context(runtime: Runtime, n: int, say: Say) -> dict[str, Any]:
    ids = bed.random_ids(n, 1)
    ours, theirs = [], []
    for i in range(ROUNDS + 1):
        say(f"context {n}, round {i}")
        ours.append(_ours(runtime, ids))
        theirs.append(_theirs(runtime, ids))
    # The first round warms both sides up.
    return {
        "context": n,
        "localkv_tps": statistics.median(ours[1:]),
        "transformers_tps": statistics.median(theirs[1:]),
    }


def _ours(runtime: Runtime, ids: list[int]) -> float:
    done, _ = bed.turn(runtime, "decode", [ids], None, TOKENS)
    return done.numbers.tokens_per_second


def _theirs(runtime: Runtime, ids: list[int]) -> float:
    opened = runtime.opened
    assert opened is not None
    model: PreTrainedModel = opened.loaded.model
    clock = Clock()
    model.set_attn_implementation("sdpa")  # what transformers picks by itself for this model
    linear.remove(model)
    try:
        prompt = torch.tensor([ids])
        generate: Any = model.generate
        with torch.inference_mode():
            generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, streamer=clock,
                max_new_tokens=TOKENS, min_new_tokens=TOKENS,
            )  # fmt: skip
    finally:
        model.set_attn_implementation(opened.verdict.attention)
        if opened.loaded.linear == linear.ONE_ROW:
            linear.install(model)
    return clock.tokens_per_second
