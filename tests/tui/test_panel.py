"""The cache panel, the row of tiers, the phase line and the header."""

import pytest
from rich.cells import cell_len

from localkv.service.protocol import TierUse
from localkv.tui.glyphs import DRAWN, PLAIN
from localkv.tui.panel import Brush, View, _short, footnote, panel_rows, tier_line
from localkv.tui.phase import Phase, describe, header_line, phase_line
from localkv.tui.rows import plain
from tests.tui.fakes import INEXACT, NUMBERS, snapshot
from tests.tui.samples import PALETTE, texts


def panel(view, width=32, glyphs=DRAWN):
    return texts(panel_rows(view, Brush(PALETTE, glyphs, width)))


def test_every_number_is_there():
    """Tiers with used and limit, the last turn by source, swaps, fallbacks by reason, events."""
    shown = "\n".join(panel(View(snapshot(), NUMBERS)))
    for words in ("5.8G/8G", "14G/32G", "61G/512G", "12,410/32,768", "from RAM", "12,288 tok", "122 tok", "210 ms", "340 ms"):
        assert words in shown
    for words in ("41.2 tok/s", "yes", "57,000 tok  95 %", "in 7  out 3", "1,024 tok", "checksum", "2 records", "83.0 s"):
        assert words in shown


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
        (Phase("loading", 1 << 30, 2 << 30, detail="Qwen"), "loading Qwen 50 %  1.0 GiB of 2.0 GiB"),
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
