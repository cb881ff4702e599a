"""`localkv say`: what it prints, what it stores, how it ends."""

import io
import json
import os
import signal
import sys
import threading

import pytest

from localkv.chat.store import ConversationStore
from localkv.cli import main
from localkv.commands import say, talk
from localkv.commands.setup import find_setup
from localkv.errors import ConfigError, ConversationExists, ModelMissing, UnknownConversation
from localkv.service.protocol import Numbers
from localkv.service.turn_events import Finished

from .engine import CountingRuntime, serving


def stored(home, name):
    """The conversation called `name` and the messages on its path."""
    store = ConversationStore.open(home.database, home.backups)
    try:
        conversation = store.by_name(name)
        return conversation, store.path(conversation.id)
    finally:
        store.close()


def speak(home, text, session="talk", runtime=None, as_json=False, **wish):
    """Run the command with an engine of its own; returns exit code and engine."""
    with serving(home, runtime or CountingRuntime()) as engine:
        return say.run(find_setup(), say.Wish(text, session, **wish), as_json=as_json), engine


def test_text_streams_to_stdout(home, capfd):
    """The answer, and nothing else, is on standard output; it ends with a newline."""
    code, engine = speak(home, "say Hello say World", new=True)
    assert code == 0
    assert capfd.readouterr().out == "HelloWorld\n"
    assert engine.calls[-1] == "close"
    assert "flush" in engine.calls


def test_answer_is_stored_with_ids(home, capfd):
    """After the command question and answer are in the database with their ids, and the next turn sends them along."""
    speak(home, "say Hello", new=True)
    _, path = stored(home, "talk")
    assert [(m.role, m.text, m.state) for m in path] == [("user", "say Hello", "complete"), ("assistant", "Hello", "complete")]
    assert all(m.ids for m in path)
    _, engine = speak(home, "say Again")
    lines = engine.requests[0].lines
    assert [(line.role, line.text, line.ids) for line in lines[:2]] == [(m.role, m.text, m.ids) for m in path]
    assert engine.requests[0].head == path[1].head


def test_json_is_one_document(home, capfd):
    """With --json one object at the end, with exactly the documented keys; the text does not stream beside it."""
    code, _ = speak(home, "say Hello", new=True, as_json=True)
    assert code == 0
    document = json.loads(capfd.readouterr().out)
    assert document == {
        "session": "talk", "answer": "Hello", "answer_ids": [5], "prompt_tokens": 100,
        "restored_tokens": {"slot": 0, "vram": 0, "ram": 60, "ssd": 30}, "prefilled_tokens": 10, "generated_tokens": 2,
        "fallbacks": [{"reason": "evicted", "tokens": 4}], "ttft_ms": 400.0, "tokens_per_second": 24.5,
        "exact": False, "inexact_because": "evicted", "stop_reason": "end",
    }  # fmt: skip
    assert sum(document["restored_tokens"].values()) + document["prefilled_tokens"] == document["prompt_tokens"]


def test_settings_of_the_command_line_are_remembered(home, capfd):
    """Model and sampling of the command line reach the engine and stay with the conversation."""
    _, engine = speak(home, "say A", new=True, system="Be brief.", max_tokens=7, temperature=0.0, seed=5, quant="8bit")
    request = engine.requests[0]
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.seed) == (7, 0.0, 5)
    assert (request.model.name, request.model.quant) == ("starter", "8bit")
    assert (request.lines[0].role, request.lines[0].text) == ("system", "Be brief.")
    _, engine = speak(home, "say B", seed=6)
    assert engine.requests[0].sampling.max_tokens == 7
    assert engine.requests[0].sampling.seed == 6
    assert stored(home, "talk")[0].sampling.seed == 6


def test_models_are_stored_as_absolute_paths(home, tmp_path, monkeypatch, capfd):
    """A relative path means the same in the next working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    _, engine = speak(home, "say A", new=True, model="m.gguf")
    assert engine.requests[0].model.name == str(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"session": "none"}, UnknownConversation),
        ({"session": "talk", "new": True}, ConversationExists),
        ({"session": "talk", "system": "x"}, ConfigError),
        ({"session": "talk", "temperature": 9.0}, ConfigError),
        ({"session": "talk", "max_tokens": 0}, ConfigError),
        ({"session": "talk", "quant": "3bit"}, ConfigError),
        ({"session": "fresh", "new": True, "model": "/no/such/folder"}, ModelMissing),
    ],
)
def test_refusals_leave_nothing_behind(home, capfd, wish, error):
    """What is asked for wrongly is refused before anything is stored or an engine is asked."""
    speak(home, "say Hello", new=True)
    before = stored(home, "talk")
    with pytest.raises(error):
        say.run(find_setup(), say.Wish("x", **wish), as_json=False)
    assert stored(home, "talk") == before
    with pytest.raises(UnknownConversation):
        stored(home, "fresh")


@pytest.mark.parametrize(
    "arguments", [["say", "x", "--session", "none"], ["say", " ", "--session", "n", "--new"], ["say", "x"]]
)
def test_exit_code_2(home, capfd, arguments):
    """Unknown conversations and mistakes on the command line end with 2 and a sentence, without a traceback."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err
    assert "Traceback" not in told.err


def test_conversations_in_the_trash_are_unknown(home, capfd):
    """What was deleted does not come back by speaking in it."""
    speak(home, "say Hello", new=True)
    store = ConversationStore.open(home.database, home.backups)
    store.trash(store.by_name("talk").id)
    store.close()
    with pytest.raises(UnknownConversation, match="trash"):
        say.run(find_setup(), say.Wish("x", "talk"), as_json=False)


def test_standard_input(home, capfd, monkeypatch):
    """A dash takes the text from standard input, whole."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("say Line\nsay Two\n"))
    _, engine = speak(home, "-", new=True)
    assert engine.requests[0].lines[0].text == "say Line\nsay Two\n"
    assert capfd.readouterr().out == "LineTwo\n"


def test_files_go_with_the_message(home, tmp_path, capfd):
    """--attach puts files before the words, in the order given, in the turn where they were given and in no later one."""
    for name in ("a.py", "b.txt"):
        (tmp_path / name).write_text(f"text of {name}\n")
    files = tuple(str(tmp_path / name) for name in ("a.py", "b.txt"))
    speak(home, "say Hello", new=True, attach=files)
    _, engine = speak(home, "say Again")
    first, _, second = engine.requests[0].lines
    fenced = [f"File: {file}\n```{language}\ntext of {name}\n```\n\n" for file, language, name in
              zip(files, ("python", "txt"), ("a.py", "b.txt"), strict=True)]  # fmt: skip
    assert first.text == "".join(fenced) + "say Hello"
    assert second.text == "say Again"


def test_a_file_that_is_no_text_stops_it_before_anything_is_stored(home, tmp_path, capfd):
    """A binary file is the person's mistake: exit code 2, a sentence, no conversation."""
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(SystemExit) as ended:
        main(["say", "hello", "--session", "talk", "--new", "--attach", str(tmp_path / "a.bin")])
    assert ended.value.code == 2
    assert "zero bytes" in capfd.readouterr().err
    assert not home.database.exists()


def test_terminals_get_harmless_text(home, monkeypatch):
    """Escape sequences of a model do not steer the terminal; a pipe gets the text as it is."""
    for is_terminal, expected in ((True, "^[[2J"), (False, "\x1b[2J")):
        out = io.StringIO()
        out.isatty = lambda answer=is_terminal: answer
        monkeypatch.setattr(sys, "stdout", out)
        speak(home, "say \x1b[2J", session=f"t{is_terminal}", new=True)
        assert out.getvalue() == expected + "\n"


def test_failure_is_told_and_coded(home, capfd):
    """A turn that fails ends with 1 and its sentence; with --json the document says so, too."""
    code, _ = speak(home, "full", new=True)
    assert code == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert "200 tokens" in told.err
    code, _ = speak(home, "full", as_json=True)
    assert code == 1
    document = json.loads(capfd.readouterr().out)
    assert document["error"] == "ContextFull"
    assert "200 tokens" in document["message"]
    assert document["exact"] is False


def test_ctrl_c_stops_and_keeps_the_answer(home, capfd):
    """The first Ctrl+C stops the answer; what came is stored as stopped; exit code 130; the handler is put back."""
    before = signal.getsignal(signal.SIGINT)
    runtime = CountingRuntime()
    play = runtime.play

    def playing(words, emit, same, cancelled):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        return play(words, emit, same, cancelled)

    runtime.play = playing
    code, _ = speak(home, "say Half wait", new=True, runtime=runtime)
    assert code == 130
    assert capfd.readouterr().out == "Half\n"
    assert [(m.text, m.state) for m in stored(home, "talk")[1]][1] == ("Half", "stopped")
    assert signal.getsignal(signal.SIGINT) is before


def test_second_ctrl_c_does_not_wait(home):
    """If the engine does not react, a second Ctrl+C ends the wait."""

    class Turn:
        cancelled = threading.Event()

        def cancel(self):
            self.cancelled.set()

    turn = Turn()
    interrupt = talk.Interrupt(turn)
    interrupt(signal.SIGINT, None)
    assert turn.cancelled.wait(10)
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)


def test_slow_saving_is_told(home, capfd, monkeypatch):
    """Saving that takes long is announced on stderr; saving that fails says so, and is not an error of the answer."""
    runtime = CountingRuntime()
    runtime.flush_gate = threading.Event()
    runtime.problem = "the disk is full"
    real = talk.say_to

    def told(stream, text):
        real(stream, text)
        if "saving" in text:
            runtime.flush_gate.set()

    monkeypatch.setattr(talk, "say_to", told)
    code, _ = speak(home, "say A", new=True, runtime=runtime)
    err = capfd.readouterr().err
    assert code == 0
    assert "[cache] saving" in err
    assert "the disk is full" in err


def test_engine_that_cannot_start(home, capfd, monkeypatch):
    """Without an engine the question is kept, a sentence is told, and the exit code is 1."""
    from localkv.service import client

    monkeypatch.setattr(client, "start_engine", lambda *_: (_ for _ in ()).throw(client.EngineUnavailable("no python")))
    code = say.run(find_setup(), say.Wish("hello", "talk", new=True), as_json=False)
    assert code == 1
    assert "no python" in capfd.readouterr().err
    assert [(m.role, m.state) for m in stored(home, "talk")[1]] == [("user", "complete"), ("assistant", "failed")]


def test_document_without_numbers():
    """A turn that was cut has a complete document that claims nothing."""
    document = say.document("s", Finished("cut", "abc", b"", "q", "a", error="EngineDied", message="gone"))
    assert document["prompt_tokens"] == 0
    assert document["exact"] is False
    assert document["stop_reason"] == "cut"
    assert document["error"] == "EngineDied"
    whole = say.document("s", Finished("complete", "abc", b"", "q", "a", "end", Numbers(prompt_tokens=1, prefilled_tokens=1)))
    assert "error" not in whole
