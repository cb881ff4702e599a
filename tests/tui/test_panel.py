"""The cache panel, the row of tiers, the phase line and the header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localkv.service.client import Resume
from localkv.service.protocol import Card, TierUse
from localkv.tui.glyphs import DRAWN, PLAIN
from localkv.tui.history import History
from localkv.tui.panel import Brush, View, _short, footnote, others_bytes, panel_rows, tier_line
from localkv.tui.phase import Phase, describe, header_line, phase_line
from localkv.tui.rows import plain
from tests.tui.fakes import INEXACT, NOON, NUMBERS, busy_hour, snapshot
from tests.tui.samples import PALETTE, texts


def panel(view, width=32, glyphs=DRAWN):
    return texts(panel_rows(view, Brush(PALETTE, glyphs, width)))


def test_every_number_is_there():
    """Tiers with used and limit, the last turn by source, swaps, fallbacks by reason, events."""
    shown = "\n".join(panel(View(snapshot(), NUMBERS)))
    for words in ("5.8G/8G", "14G/32G", "61G/512G", "12,410/32,768", "from RAM", "12,288 tok", "122 tok", "210 ms", "340 ms"):
        assert words in shown
    for words in ("41.2 tok/s", "yes", "57,000 tok  95 %", "1x  1,024 tok", "checksum", "2 records", "83.0 s"):
        assert words in shown


def test_what_takes_the_memory_of_a_card():
    """Weights, slot, pool, and everything else on it; nothing of that where the device is unknown or a CPU."""
    card = Card(total_bytes=24 << 30, used_bytes=21 << 30)
    shown = panel(View(snapshot(card=card)))
    assert shown[1].startswith("VRAM")
    assert shown[1].endswith("21G/24G")
    assert [line.split() for line in shown[2:4]] == [
        ["weights,", "slot", "8G,", "4G"],
        ["pool,", "others", "5.8G/8G,", "3.2G"],
    ]
    assert sum(line.startswith("VRAM ") and "/" in line for line in shown) == 1
    assert "others" not in "\n".join(panel(View(snapshot())))


@given(*[st.integers(0, 1 << 40)] * 5)
def test_what_others_take_is_never_negative(used, weights, slot, pooled, committed):
    """Figures are of different moments, and together they may be more than the card has."""
    use = TierUse(used_bytes=pooled, committed_bytes=committed)
    seen = snapshot(card=Card(total_bytes=1 << 40, used_bytes=used), weights_bytes=weights, slot_bytes=slot, vram=use)
    assert 0 <= others_bytes(seen) <= used


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("slot", "in the slot"),
        ("vram", "in VRAM"),
        ("ram", "in RAM, back in 200 ms"),
        ("ssd", "on SSD"),
        ("none", "not cached"),
    ],
)
def test_this_conversation(origin, words):
    """Its tier and how long coming back takes, tokens and bytes, what of the last prompt was reused, and that it is exact."""
    shown = panel(View(snapshot(), NUMBERS, Resume(0.2 if origin != "slot" else 0.0, origin), 147_456), 44)
    at = shown.index("THIS CONVERSATION")
    assert words in shown[at + 1]
    assert [line.split(maxsplit=1)[1].strip() for line in shown[at + 2 : at + 5]] == [
        "12,624 tok  1.7 GiB",
        "12,288 tok  99 %",
        "yes",
    ]


def test_the_conversation_of_the_last_turn_is_in_the_slot():
    """Nobody needs to ask the engine for that; of another one nothing is claimed."""
    assert any("in the slot" in line for line in panel(View(snapshot(), NUMBERS)) if line.startswith("it is"))
    assert not any(line.startswith("it is") for line in panel(View(snapshot(), INEXACT)))


def test_forecasts_stand_beside_what_was_measured():
    """Restoring and computing, each with what was said before; why something was computed again, for this turn and in all."""
    said = "\n".join(panel(View(snapshot(), NUMBERS), 44))
    assert "210 ms (said 200 ms)" in said
    assert "90.0 ms (said 95.0 ms)" in said
    assert any(line.split() == ["of", "it", "checksum", "256", "tok"] for line in panel(View(None, INEXACT)))


def test_swaps_of_the_last_minutes_are_drawn():
    """Each tier and way in which something ever moved has a row: lately, and in all."""
    history = History()
    busy_hour(history, NOON - 240, 4)
    rows = panel(View(history.newest, None, flows=history.flows(NOON)))
    at = rows.index("SWAPS, LAST 4 MIN / ALL")
    assert [line.split()[:2] + line.split()[-1:] for line in rows[at + 1 : at + 5]] == [
        ["VRAM", "in", "19"], ["VRAM", "out", "3"], ["RAM", "in", "8"], ["SSD", "in", "3"],
    ]  # fmt: skip
    assert rows[at + 1].count("\u2588") == 3
    assert "\u2588" not in rows[at + 2]


def test_preloads_and_what_was_written_today():
    """Records that were brought ahead of time: used, for nothing; bytes written by all engines since midnight."""
    said = "\n".join(panel(View(snapshot())))
    for words in ("12, 9 used", "1  24.0 MiB", "today                  5.0 GiB"):
        assert words in said


def test_not_exact_says_why():
    """A turn that is not exact names its reason in the panel and beneath the answer."""
    assert "no: checksum" in "\n".join(panel(View(snapshot(), INEXACT)))
    assert footnote(INEXACT).endswith("not exact: checksum")


@pytest.mark.parametrize("width", [24, 32, 60])
def test_the_panel_fits(width):
    """No row is wider than the panel."""
    rows = panel_rows(View(snapshot(recent=("x" * 200,)), INEXACT), Brush(PALETTE, DRAWN, width))
    assert max(row.strip.cell_length for row in rows) <= width


def test_without_an_engine():
    """Before there is an engine the panel says so and shows the stored turn."""
    shown = "\n".join(panel(View(None, NUMBERS)))
    assert "The engine is not there yet." in shown
    assert "12,288 tok" in shown


def test_a_machine_without_vram_has_no_bar_for_it():
    """A tier of size nought is not shown."""
    assert not any(row.startswith("VRAM") for row in panel(View(snapshot(vram=TierUse()))))


def test_ascii():
    """Without drawn characters every row is ASCII."""
    rows = panel(View(snapshot(), NUMBERS), glyphs=PLAIN)
    assert all(row.isascii() for row in rows)


def test_the_row_of_tiers():
    """All tiers and the speed in one row of 78 cells."""
    spans = tier_line(View(snapshot(), NUMBERS), Brush(PALETTE, DRAWN, 78))
    assert sum(cell_len(text) for text, _ in spans) <= 78
    assert "5.8G/8G" in plain(spans)
    assert "41.2 tok/s" in plain(spans)


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0B"), (999, "999B"), (1 << 30, "1G"), (int(5.8 * 2**30), "5.8G"), (14 << 30, "14G"), (3 << 40, "3.0T")],
)
def test_short_sizes(n_bytes, text):
    """Sizes in at most five characters."""
    assert _short(n_bytes) == text


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase(), ""),
        (Phase("queued", detail="behind another conversation"), "queued behind another conversation"),
        (Phase("loading", 1 << 30, 2 << 30, detail="checking Qwen"), "checking Qwen 50 %  1.0 GiB of 2.0 GiB"),
        (Phase("loading", 1 << 30, 2 << 30), "loading 50 %  1.0 GiB of 2.0 GiB"),
        (Phase("restoring", 410, 1_000), "restoring 41 %  410 B of 1000 B"),
        (Phase("prefill", 3_120, 9_800, 410.0), "prefill 3,120/9,800 31 %  410.0 tok/s  ~16.3 s left"),
        (Phase("generating", 214, 0, 41.2), "generating 214 tok  41.2 tok/s"),
        (Phase("saving", detail="and leaving"), "saving and leaving"),
    ],
)
def test_phases(phase, words):
    """Each phase says how far it is, how fast, and how long it will take."""
    assert describe(phase) == words


def test_unsaved_comes_first():
    """UNSAVED is the first word, whatever else happens, and told without colour."""
    assert plain(phase_line(Phase("generating", 3), 80, PALETTE, unsaved=2)).startswith("UNSAVED 2")


@pytest.mark.parametrize("width", [10, 30, 60, 120])
def test_the_header_fits(width):
    """A long title is cut, facts leave from the left."""
    spans = header_line("漢字 title " * 20, ["12,410/32,768 tok", "Qwen3-4B", "ready"], width, PALETTE, DRAWN)
    assert sum(cell_len(text) for text, _ in spans) <= width
    assert "…" in plain(spans)
