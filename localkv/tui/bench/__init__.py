"""`bench tui`: what the screen costs, headless, in one run: opening, streaming, filtering, searching, memory; and what it costs
the answer and the person while the engine works.

The screen is the real one, drawn without a terminal. The first part (face.py) has no engine, the second (turns.py) has one with
the starter model. Imports no torch: the engine is another process. Thread: main.
"""

from typing import Any

from localkv.commands.bench import Say, bed_home
from localkv.tui.bench import face, turns


def measure(say: Say) -> dict[str, Any]:
    """All figures; times are medians unless their name says otherwise."""
    with bed_home.scratch_home() as home:
        figures = face.measure(home, say)
    with bed_home.scratch_home() as home:
        figures |= turns.measure(home, say)
    return {name: figures[name] for name in KEYS}


KEYS = (
    "open_20_s", "open_2000_s", "flush_mean_ms", "flush_p99_ms", "tps_ratio", "filter_ms", "search_ms", "rss_mb",
    "restore_stall_ms",
)  # fmt: skip
