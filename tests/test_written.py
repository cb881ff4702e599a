"""Wear: what a conversation writes to SSD is its new tokens and one state per turn, however long it is already."""

import pytest

from tests.engine.tiny_engine import ask, make, runtime_of

pytestmark = pytest.mark.slow

WIDE = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
"""Records large enough for their headers to count as little as a real model's: 256 KiB in a block of 16 tokens."""

TURNS = 6


@pytest.mark.parametrize(
    ("name", "changes"),
    [("llama", WIDE), ("gemma3_text", WIDE), ("mistral", WIDE), ("qwen3_next", {**WIDE, "head_dim": 256})],
)
def test_bytes_written(name, changes, tmp_path):
    """At most 5 % more than the blocks of the new tokens and one checkpoint per turn, with a save after every turn."""
    with runtime_of(make(name, tmp_path / name, **changes), tmp_path / "home") as runtime:
        layout = runtime.opened.loaded.layout
        head, lines, blocks, states = None, (), 0, 0
        for turn in range(TURNS):
            text = " ".join(f"turn {turn}: the quick brown fox number {i} jumps over the lazy dog" for i in range(4))
            before = head.tokens if head else 0
            done, lines = ask(runtime, text, head=head, lines=lines, n_tokens=30)
            head = done.head
            blocks += (head.tokens // 16 - before // 16) * layout.block_bytes
            states += layout.checkpoint_bytes(head.tokens)
            assert not runtime.flush(60.0).problem
        written = runtime.snapshot().written_bytes
    on_disk = sum(file.stat().st_size for file in (tmp_path / "home").rglob("*.safetensors"))
    assert head.tokens >= 1000
    assert written <= 1.05 * (blocks + states)
    # and old states do not stay: the newest one alone is left
    assert on_disk <= 1.05 * (blocks + layout.checkpoint_bytes(head.tokens)) + 4096 * TURNS
