"""The event log: JSON lines, bounded, never in the way."""

import json
import os
import stat

import pytest

from localkv.events import EventLog, Reason, read_events


def test_events_are_json_lines(tmp_path):
    """Each event is one line that any tool reads, and comes back as it was."""
    log = EventLog(tmp_path / "events.jsonl")
    event = log.emit("fallback", reason=Reason.EVICTED, tokens=256, exact=False, detail=None)
    line = json.loads((tmp_path / "events.jsonl").read_text())
    assert line["kind"] == "fallback"
    assert line["fields"] == {"reason": "evicted", "tokens": 256, "exact": False, "detail": None}
    assert read_events(tmp_path / "events.jsonl", 10) == [event]


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_log_is_private(tmp_path):
    """Nobody else may read when a person chats."""
    before = os.umask(0)
    try:
        EventLog(tmp_path / "events.jsonl").emit("engine.start")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600


def test_log_is_bounded(tmp_path):
    """At most two files of the given size; the newest events survive, in order."""
    log = EventLog(tmp_path / "events.jsonl", max_bytes=1000)
    for number in range(200):
        log.emit("move", number=number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.1.jsonl", "events.jsonl"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    numbers = [event.fields["number"] for event in read_events(tmp_path / "events.jsonl", 12)]
    assert numbers == list(range(188, 200))


def test_newest_are_in_memory():
    """The panel shows the newest without reading a file."""
    log = EventLog(None, keep=3)
    for number in range(5):
        log.emit("move", number=number)
    assert [event.fields["number"] for event in log.recent] == [2, 3, 4]


def test_unwritable_log_stops_nobody(tmp_path):
    """A log that cannot be written is told, not raised, and is forgotten once it can."""
    log = EventLog(tmp_path / "gone" / "events.jsonl")
    log.emit("move")
    assert "events.jsonl" in log.write_error
    (tmp_path / "gone").mkdir()
    log.emit("move")
    assert log.write_error == ""


def test_broken_lines_are_counted(tmp_path):
    """A torn line does not hide the others, and is not hidden itself."""
    file = tmp_path / "events.jsonl"
    EventLog(file).emit("engine.start")
    with file.open("ab") as stream:
        stream.write(b'{"time": 1\n\xff\xfe\n[]\n')
    events = read_events(file, 10)
    assert [event.kind for event in events] == ["engine.start", "log.unreadable_lines"]
    assert events[1].fields == {"count": 3}


def test_no_log_yet(tmp_path):
    """Before the first event there is nothing, and that is no error."""
    assert read_events(tmp_path / "events.jsonl", 10) == []
    EventLog(tmp_path / "events.jsonl").emit("a")
    assert read_events(tmp_path / "events.jsonl", 0) == []


def test_reasons_are_the_closed_list():
    """Panel, JSON and log speak of the same reasons."""
    assert len(Reason) == 17
    assert Reason("short_read") is Reason.SHORT_READ
