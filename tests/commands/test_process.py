"""The commands as processes of their own, with an engine in the test's process: pipes, signals, exit codes."""

import json
import signal
import subprocess
import sys

import pytest

from .engine import CountingRuntime, serving


def start(*arguments):
    """`localkv` with these arguments, in pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", "localkv", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_say_and_say_again(home):
    """Two processes, one conversation: the second knows what the first said."""
    for number, extra in enumerate((["--new"], [])):
        with serving(home, CountingRuntime()) as engine:
            process = start("say", f"say A{number}", "--session", "s", "--json", *extra)
            out, err = process.communicate()
        assert process.returncode == 0, err
        assert json.loads(out)["answer"] == f"A{number}"
        assert err == ""
        assert len(engine.requests[0].lines) == 1 + 2 * number


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_ctrl_c_keeps_what_came(home):
    """SIGINT while the answer streams: the text that came is printed and stored, the exit code is 130."""
    with serving(home, CountingRuntime()):
        process = start("say", "say Half wait", "--session", "s", "--new")
        assert process.stdout.read(4) == "Half"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == "\n"
    assert "Traceback" not in err
    shown = json.loads(start("sessions", "show", "s", "--json").communicate()[0])
    assert [(m["text"], m["state"]) for m in shown["path"]] == [("say Half wait", "complete"), ("Half", "stopped")]


def test_reader_that_goes_away_stops_the_answer(home):
    """`localkv say … | head -c 4` ends quietly, and what came is stored."""
    with serving(home, CountingRuntime()), start("say", "-", "--session", "s", "--new") as process:
        process.stdin.write("say Half " + "say x " * 50_000)
        process.stdin.close()
        assert process.stdout.read(4) == "Half"
        process.stdout.close()
        err = process.stderr.read()
    assert "Traceback" not in err
    assert "Exception" not in err
    shown = json.loads(start("sessions", "show", "s", "--json").communicate()[0])
    assert shown["path"][1]["text"].startswith("Half")


def test_chat_in_a_pipe_is_plain(home):
    """Without a terminal `localkv chat` goes line by line; the answer is there before the next line is asked for."""
    with serving(home, CountingRuntime()):
        process = start("chat", "--session", "s")
        assert process.stdout.read(5) == "you> "
        process.stdin.write("say Hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Hello\n"
        process.stdin.write("/quit\n")
        process.stdin.close()
        # not communicate(): it reads past what readline() has buffered already
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait() == 0
        process.stdout.close()
        process.stderr.close()
    assert out == "you> "
    assert "[cache] restored" in err


def test_plain_chat_with_bad_bytes(home):
    """Input that is no UTF-8 does not end the chat."""
    with serving(home, CountingRuntime()):
        done = subprocess.run(
            [sys.executable, "-m", "localkv", "chat", "--plain"], input=b"say \xff\n", capture_output=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "\ufffd".encode() in done.stdout
