"""What is said about a turn."""

import pytest

from localkv.commands.sentences import _REASONS, cache_lines, plan_line, progress_line, speed_line
from localkv.events import Reason
from localkv.service.protocol import Fallback, Numbers, Progress, Source, Started


def test_every_reason_has_words():
    """Each reason of the closed list is explained, and none besides."""
    assert set(_REASONS) == set(Reason)


@pytest.mark.parametrize(
    ("source", "seconds", "line"),
    [
        (Source(), 0.0, "computed 12"),
        (Source(ssd=12288), 0.9, "restored 12,288 tokens from SSD in 900 ms, computed 12"),
        (Source(slot=5), 0.0, "restored 5 tokens still in place, computed 12"),
        (
            Source(slot=1, vram=2, ram=3, ssd=4),
            0.0,
            "restored 1 token still in place, 2 tokens from GPU memory, 3 tokens from RAM and 4 tokens from SSD, computed 12",
        ),
    ],
)
def test_where_tokens_came_from(source, seconds, line):
    """Tiers in order, with how long it took."""
    assert cache_lines(Numbers(restored=source, prefilled_tokens=12, restore_seconds=seconds)) == [line]


def test_fallbacks_and_exactness():
    """Each fallback has a line with count, words and reason; not exact is said with its reason."""
    numbers = Numbers(prefilled_tokens=9, fallbacks=(Fallback("checksum", 7), Fallback("new_reason", 1)), exact=False)
    assert cache_lines(numbers)[1:] == [
        "computed again: 7 tokens, because a cache file is damaged (checksum)",
        "computed again: 1 token, because new_reason (new_reason)",
        "not exact",
    ]


def test_speed():
    """Time to the first token, rate and count; no rate for a single token."""
    assert speed_line(Numbers(ttft_ms=55, generated_tokens=1)) == "first token after 55.0 ms, 1 token"


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        ({"phase": "queued", "done": 0, "total": 1}, "waiting for 1 earlier request"),
        (
            {"phase": "loading", "done": 1 << 20, "total": 4 << 20, "detail": "checking the weights"},
            "checking the weights 25% of 4.0 MiB",
        ),
        ({"phase": "loading", "done": 0, "total": 0, "detail": "starting torch"}, "starting torch"),
        ({"phase": "restoring", "done": 0, "total": 4 << 20}, "restoring 0% of 4.0 MiB"),
        ({"phase": "prefill", "done": 50, "total": 1000, "per_second": 700.0}, "reading 5% of 1,000 tokens, 700 tokens/s"),
    ],
)
def test_progress(progress, line):
    """Each phase in its own unit."""
    assert progress_line(Progress(request=1, epoch="e", **progress)) == line


def test_what_was_foretold_is_said_before_and_beside_what_it_took():
    """A turn says what it will bring, from where and how long that takes; afterwards the measured time stands before the forecast."""
    started = Started(
        request=1, epoch="e", line_ids=(), prompt_tokens=4200, planned=Source(ram=96, ssd=4000), resume_at=4096,
        restore_seconds=0.9, prefill_seconds=0.25,
    )  # fmt: skip
    assert plan_line(started) == (
        "to restore: 96 tokens from RAM and 4,000 tokens from SSD, about 900 ms; to compute: 104 tokens, about 250 ms"
    )
    numbers = Numbers(restored=Source(ssd=5), prefilled_tokens=1, restore_seconds=0.5, predicted_restore_seconds=0.25)
    assert cache_lines(numbers) == ["restored 5 tokens from SSD in 500 ms (foretold: 250 ms), computed 1"]


def test_what_was_read_while_typing_is_not_called_cached():
    """Tokens that were computed before Enter lie in the slot; that they were typed is said."""
    numbers = Numbers(restored=Source(slot=2000), typed_tokens=1800, prefilled_tokens=9)
    assert cache_lines(numbers) == [
        "restored 2,000 tokens still in place, of which 1,800 tokens were read while they were typed, computed 9"
    ]
