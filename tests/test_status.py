"""Events as the panel says them."""

import pytest

from localkv.events import Event
from localkv.status import sentence


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("move", {"from": "ssd", "to": "ram", "bytes": 1 << 20, "reason": "restore"}, "ssd > ram  1.0 MiB  restore"),
        ("fallback", {"tokens": 256, "reason": "evicted"}, "fallback prefill  256 tokens  evicted"),
        ("turn", {"restored_tokens": 65, "prefilled_tokens": 15}, "turn  65 restored  15 computed"),
        ("engine.start", {"epoch": "8c11", "pid": 7}, "engine.start"),
        ("model.open", {"model": "starter", "identity": "ab"}, "model.open  model=starter"),
    ],
)
def test_sentences(kind: str, fields: dict[str, str | int], expected: str) -> None:
    """An event is one short line, without what only a log needs."""
    assert sentence(Event(0.0, kind, fields)) == expected
