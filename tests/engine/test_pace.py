"""The estimate of a real, tiny model: measured beside the live conversation, which stays as it is."""

import pytest

from localkv.commands.bench import tiny
from localkv.commands.plan import cost_of
from localkv.estimate import measure_reading
from tests.engine.tiny_engine import ask, make, runtime_of

TEXT = " ".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(3))


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "falcon_h1", "mamba2", "jamba"])
def test_an_estimate_of_each_kind(name, tmp_path):
    """Bytes are those of the layout, rates are numbers, and the conversation in the slot goes on exactly."""
    with runtime_of(make(name, tmp_path / name), tmp_path / "home") as runtime:
        done, lines = ask(runtime, TEXT)
        said = []
        found = runtime.estimate(said.append)
        layout = runtime.opened.loaded.layout
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.slot == done.head.tokens
    assert again.numbers.exact
    assert said
    assert found.full_token_bytes == layout.token_bytes
    assert {each.window for each in found.sliding} == {slab.window for slab in layout.sliding_slabs}
    assert found.copy_rate > 0
    assert found.read_rate > 0
    assert found.token_seconds > 0
    assert found.deeper_seconds >= 0
    n = 8 * tiny.WINDOW + 5
    cost = cost_of(found, n)
    stored = layout.checkpoint_bytes(n) + layout.block_bytes * (n // 16)
    assert cost.total_bytes == stored


def test_scratch_files_go(tmp_path):
    """Measuring the disk leaves nothing behind, and a place that cannot be written is no rate and no error."""
    rate, _ = measure_reading(tmp_path)
    assert rate > 0
    assert list(tmp_path.iterdir()) == []
    assert measure_reading(tmp_path / "missing") == (0.0, False)
