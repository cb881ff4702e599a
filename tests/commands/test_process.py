"""The commands as processes of their own, with an engine in the test's process: pipes, signals, exit codes."""

import json
import os
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


def run_in(encoding, *arguments, given=b"", **more):
    """Exit code and output of a command, as bytes, whose standard streams have this encoding."""
    command = [sys.executable, "-m", "localkv", *arguments]
    environment = os.environ | {"PYTHONIOENCODING": encoding} | more
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=environment)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("arguments", [("say", "-", "--session", "s", "--new"), ("chat", "--plain", "--session", "s")])
@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_bytes_that_are_no_text_are_read(home, arguments, encoding):
    """What is piped in need not be text in every byte: the rest of the question is asked."""
    with serving(home, CountingRuntime()) as engine:
        assert run_in(encoding, *arguments, given=b"say A\xff\xfe\n")[0] == 0
    assert engine.requests[0].lines[-1].text.strip() == "say A\ufffd\ufffd"


def test_an_answer_ends_in_any_locale(home):
    """Characters that the locale does not have are written with a backslash, and what follows them is there: said, opened, listed."""
    with serving(home, CountingRuntime()):
        said = run_in("latin-1:strict", "say", "say caf\xe9 say \U0001f600 say B", "--session", "s", "--new")
    with serving(home, CountingRuntime()):
        opened = run_in("latin-1:strict", "chat", "--plain", "--session", "s")
    listed = run_in("latin-1:strict", "sessions", "show", "s")
    for code, out in (said, opened, listed):
        assert (code, b"caf\xe9\\U0001f600B" in out) == (0, True)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_paths_that_are_no_text_are_shown(tmp_path):
    """Folders may have names that no encoding knows."""
    code, out = run_in("utf-8:strict", "paths", LOCALKV_HOME=os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert (code, b"\\udcff" in out) == (0, True)


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
