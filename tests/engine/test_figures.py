"""Figures of a running engine, against what the test did to it: one snapshot for panel and `localkv stats`."""

import pytest

from localkv.commands.stats import sections
from localkv.errors import TooLittleMemory
from localkv.figures import Card
from localkv.messages import Snapshot
from tests.engine.tiny_engine import ask, make, runtime_of

QUESTION = "a question of more than one block of tokens, and then some"


@pytest.fixture
def runtime(fast_dir):
    with runtime_of(make("llama", fast_dir / "model"), fast_dir / "home") as opened:
        yield opened


def test_the_snapshot_counts_what_happened(runtime, fast_dir):
    """Turns, restores from each tier, bytes, times, fallbacks by reason, and a restore that failed: each as often as it was."""
    first, lines = ask(runtime, QUESTION, name="one")
    other, _ = ask(runtime, "something else altogether, and long enough", name="two")
    back, lines = ask(runtime, "and then?", lines=lines, head=first.head, name="one")
    assert back.numbers.restored.ram == first.head.tokens
    runtime.flush(30)
    runtime.opened.keeper.shed()
    runtime.opened.live.reset()
    bad = next(
        path
        for path in (fast_dir / "home").rglob("*.safetensors")
        if path.stem == runtime.opened.keeper._index.entries[back.head.name].row.parent
    )
    bad.write_bytes(bytes(bad.stat().st_size))
    third, _ = ask(runtime, "and now?", lines=lines, head=back.head, name="one")
    runtime.flush(30)  # between writing a file and its row the two counts of bytes differ
    snapshot = runtime.snapshot()
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.turns, snapshot.ttft_ms.count, snapshot.tokens_per_second.count) == (4, 4, 4)
    assert (snapshot.restores.tried, snapshot.restores.failed) == (3, 1)
    assert snapshot.restores.n_bytes == back.numbers.restored_bytes + third.numbers.restored_bytes
    assert snapshot.restores.ms.count == 2
    assert snapshot.fallback_prefills == {"checksum": 1}
    assert snapshot.fallback_tokens == {"checksum": sum(lost.tokens for lost in third.numbers.fallbacks)}
    assert snapshot.ram.swaps_in >= 1
    assert snapshot.ram.ms_in.count == snapshot.ram.swaps_in
    assert snapshot.ssd.ms_in.count == snapshot.ssd.swaps_in > 0
    assert snapshot.written.total_bytes == snapshot.written_bytes > 0
    assert snapshot.restored_tokens == sum(done.numbers.restored.total for done in (first, other, back, third))
    said = sections(snapshot)
    assert "1 broken off (33%)" in str(said["since it started"]["restores"])


def test_the_snapshot_tells_the_card_as_of_the_end_of_the_last_turn(runtime, monkeypatch):
    """What all programs have taken is asked for after each turn, and is gone with the model."""
    seen = iter([Card(total_bytes=24, used_bytes=20), Card(total_bytes=24, used_bytes=21)])
    monkeypatch.setattr("localkv.opened.card_of", lambda device: next(seen))
    first, lines = ask(runtime, QUESTION)
    assert runtime.snapshot().card.used_bytes == 20
    ask(runtime, "and then?", lines=lines, head=first.head)
    assert runtime.snapshot().card == Card(total_bytes=24, used_bytes=21)
    runtime.close()
    assert runtime.snapshot().card == Card()


def test_memory_is_asked_for_before_a_prompt_is_read(runtime, monkeypatch):
    """A prompt whose state can't fit is refused with both figures before anything is computed, and what was there stays."""
    monkeypatch.setattr("localkv.opened.swap_memory", lambda: 0)
    first, lines = ask(runtime, QUESTION)
    before = runtime.opened.live.forwarded_tokens
    monkeypatch.setattr("localkv.opened.available_memory", lambda: 1000)
    with pytest.raises(TooLittleMemory, match="MiB are available") as refused:
        ask(runtime, QUESTION * 4, lines=lines, head=first.head)
    assert refused.value.needed_bytes > refused.value.available_bytes == 1000
    assert runtime.opened.live.forwarded_tokens == before
    monkeypatch.undo()
    again, _ = ask(runtime, QUESTION * 4, lines=lines, head=first.head)
    assert again.numbers.exact
