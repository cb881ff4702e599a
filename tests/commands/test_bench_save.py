"""`bench save`: what a segment notes of an answer, without a model."""

import pytest

from localkv.commands.bench import save
from localkv.messages import Delta, Progress


class Pauses:
    """Transfers, as far as a segment knows them."""

    def __init__(self):
        self.limits = []

    def limit_pause(self, seconds):
        self.limits.append(seconds)


@pytest.mark.parametrize("saving", [True, False])
def test_saves_begin_with_the_first_token_and_only_where_they_are_measured(monkeypatch, saving):
    """What is written before the answer or in a quiet segment would be counted to the wrong side."""
    clock, written = iter([1.0, 1.5, 2.5]), iter([100, 100, 350])
    monkeypatch.setattr(save.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(save.bed, "disk_written_bytes", lambda: next(written))
    pauses = Pauses()
    segment = save.Segment(pauses, saving)
    segment.hear(Progress(request=1, epoch="e", phase="prefill", done=1, total=2))
    assert pauses.limits == []
    for _ in range(3):
        segment.hear(Delta(request=1, epoch="e", text="", ids=b"0123"))
    assert pauses.limits == ([0.0] if saving else [])
    assert segment.steps == [0.5, 1.0]
    assert segment.written == 250
