"""The next token from logits: transformers' logits processors and a generator seeded from the token's position.

Because each step's generator is seeded from H(seed, position), pausing, crashing and restoring need no saved state: the same
conversation at the same position draws the same number. Thread: the engine's.
"""

import hashlib
from collections.abc import Sequence

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from localkv.config import SamplingSection


class Sampler:
    """Draws tokens under one SamplingSection."""

    def __init__(self, sampling: SamplingSection) -> None:
        self._sampling = sampling
        self._greedy = sampling.temperature == 0
        self._processors = _processors(sampling)
        self._needs_ids = sampling.repetition_penalty != 1.0

    def draw(self, logits: torch.Tensor, ids: Sequence[int], position: int) -> int:
        """The token at `position`; `logits` is [V], `ids` are all tokens before it."""
        scores = logits.float().cpu().unsqueeze(0)
        if self._processors:
            seen = torch.tensor([ids], dtype=torch.long) if self._needs_ids else torch.empty((1, 0), dtype=torch.long)
            scores = self._processors(seen, scores)  # type: ignore[arg-type]  # a LongTensor is a tensor of dtype long
        if self._greedy:
            return int(scores.argmax(dim=-1))
        generator = torch.Generator().manual_seed(step_seed(self._sampling.seed, position))
        return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=generator))


def step_seed(seed: int, position: int) -> int:
    """The generator's seed for one position: 63 bits of blake2b(seed, position)."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _processors(sampling: SamplingSection) -> LogitsProcessorList:
    steps: list[LogitsProcessor] = []
    if sampling.repetition_penalty != 1.0:
        steps.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature not in (0.0, 1.0):
        steps.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.temperature == 0:
        return LogitsProcessorList(steps)
    if sampling.top_k:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        steps.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        steps.append(MinPLogitsWarper(sampling.min_p))
    return LogitsProcessorList(steps)
