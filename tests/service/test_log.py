"""The engine's log file."""

import stat
import subprocess
import sys

from localkv.service import log
from localkv.service.log import last_lines, open_log, predecessor


def test_the_log_is_private_appended_and_bounded(tmp_path, monkeypatch):
    """Engines write one after the other into the same file until it is long; then one predecessor is kept."""
    import os

    file = tmp_path / "engine.log"
    monkeypatch.setattr(log, "MAX_LOG_BYTES", 10)
    for text in (b"first\n", b"second\n", b"third\n"):
        fd = open_log(file)
        os.write(fd, text)
        os.close(fd)
    assert predecessor(file).read_bytes() == b"first\nsecond\n"
    assert file.read_bytes() == b"third\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_last_lines_are_the_newest_that_say_something(tmp_path):
    """What an error shows of the log is its end, without blank lines; a missing log is no error."""
    file = tmp_path / "engine.log"
    assert last_lines(file, 3) == []
    file.write_bytes(b"a\n\n\xff broken\n\nc\n")
    assert last_lines(file, 2) == ["\ufffd broken", "c"]


def test_a_running_process_turns_its_own_log_over(tmp_path):
    """An engine that runs for days does not fill the disk with its log."""
    file = tmp_path / "engine.log"
    program = (
        "import sys; from pathlib import Path; from localkv.service import log; log.MAX_LOG_BYTES = 10; file = Path(sys.argv[1])\n"
        "print('a long line of log', flush=True); log.turn_over(file); print('new', flush=True); log.turn_over(file)\n"
    )
    with file.open("ab") as stream:
        subprocess.run([sys.executable, "-c", program, str(file)], stdout=stream, check=True)
    assert predecessor(file).read_text() == "a long line of log\n"
    assert file.read_text() == "new\n"
