"""The chat line by line, over the real service with scripted answers."""

import io
import os
import signal
import threading

import pytest

from localkv import plain
from localkv.chat.erasures import Erasures
from localkv.chat.store import ConversationStore
from localkv.commands.console import CONTINUED, PROMPT, Console
from localkv.commands.registry import PLAIN_COMMANDS
from localkv.commands.setup import find_setup
from localkv.commands.talk import open_talk
from localkv.errors import NotWritable, UnknownConversation
from localkv.tiers.upkeep import Freed
from tests.commands.engine import CountingRuntime, serving


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


class Result:
    """What a chat printed and how it ended."""

    def __init__(self, code, out, err, engine):
        self.code, self.out, self.err, self.engine = code, out, err, engine

    def answers(self):
        """Standard output without prompts."""
        return self.out.replace(PROMPT, "").replace(CONTINUED, "")


def chat(home, text, runtime=None, model=None, session=None, source=None, change=None):
    """A whole chat with this input."""
    console = Console(source or io.StringIO(text), io.StringIO(), io.StringIO())
    with serving(home, runtime or CountingRuntime()) as engine, open_talk(find_setup(), console.errors) as talk:
        config = talk.config
        face = plain.PlainChat(talk, console, plain.Draft(config.model, config.sampling, config.chat.system))
        plain.begin(face, model, session)
        face.prepare()
        if change:
            change(face)
        code = face.run()
    return Result(code, console.out.getvalue(), console.errors.getvalue(), engine)


def names(home):
    """All conversations: name, title, whether in the trash."""
    store = ConversationStore.open(home.database, home.backups)
    try:
        return [(c.name, c.title, c.trashed is not None) for c in store.list(include_trashed=True)]
    finally:
        store.close()


def test_prompts_and_answers(home):
    """Prompts and answers are on standard output, everything else on stderr; the end of the input ends it."""
    result = chat(home, "say Hello\nsay World\n")
    assert result.code == 0
    assert result.out == "you> Hello\nyou> World\nyou> \n"
    assert [request.lines[-1].text for request in result.engine.requests] == ["say Hello", "say World"]
    assert len(result.engine.requests[1].lines) == 3
    assert "\x1b" not in result.out + result.err
    assert "\r" not in result.out + result.err


def test_cache_events_are_told(home):
    """After each answer stderr says where its tokens came from, what was computed again and why, and how fast it was."""
    err = chat(home, "say Hello\n").err.splitlines()
    assert "[cache] restored 60 tokens from RAM and 30 tokens from SSD in 250 ms, computed 10" in err
    assert "[cache] computed again: 4 tokens, because their cache had made room for others (evicted)" in err
    assert "[cache] not exact: their cache had made room for others" in err
    assert "[turn] first token after 400 ms, 24.5 tokens/s, 2 tokens" in err


def test_long_lines_go_on(home):
    """A backslash at the end of a line makes the next line part of the message."""
    result = chat(home, "say A \\\nsay B\n")
    assert result.engine.requests[0].lines[-1].text == "say A \nsay B"
    assert result.out.startswith("you> ...> AB\n")


def test_last_line_without_newline(home):
    """A message that ends with the input is a message, also after a backslash."""
    assert chat(home, "say A").answers() == "A\n\n"
    assert chat(home, "say B\\").engine.requests[0].lines[-1].text == "say B\\"


def test_every_command_of_the_registry_works(home):
    """No command is shown in help that does nothing, and none exists that help hides."""
    with open_talk(find_setup(), io.StringIO()) as talk:
        face = plain.PlainChat(talk, Console(io.StringIO(), io.StringIO(), io.StringIO()), None)
        assert set(face.actions()) == {command.slash for command in PLAIN_COMMANDS}


def test_help_and_mistakes(home):
    """Help lists all commands; a mistyped one is answered with the nearest; "//" starts a message with a slash."""
    result = chat(home, "/help\n/hlep\n/open\n//say A\n")
    for command in PLAIN_COMMANDS:
        assert f"/{command.slash}" in result.out
    assert "did you mean /help?" in result.err
    assert "write /open NAME" in result.err
    assert result.engine.requests[0].lines[-1].text == "/say A"


def test_conversations(home):
    """Begin, list, open, rename, delete and bring back; what was not said in is not stored."""
    result = chat(
        home,
        "/new empty\n/new one\nsay A\n/rename First\n/new two\nsay B\n/list\n/open one\nsay C\n/delete\n/list\n/undo\nsay D\n/open nothing\n",
    )
    assert sorted(names(home)) == [("one", "First", False), ("two", "say B", False)]
    assert [request.lines[-1].text for request in result.engine.requests] == ["say A", "say B", "say C", "say D"]
    assert [len(request.lines) for request in result.engine.requests] == [1, 1, 3, 5]
    assert "First" in result.out
    assert "nearest" in result.err


def test_order_among_conversations(home):
    """Pin, tag and archive from inside a chat; the list leaves out what was put away; search finds it; the trash gives back."""
    result = chat(
        home,
        "/new one\nsay swordfish\n/tag Work rust\n/tag -rust\n/pin\n/archive\n/list\n/new two\nsay B\n/delete\n"
        "/search sword\n/search nowhere\n/trash\n/trash two\nsay C\n/trash\n/tag\n/pin\n/pin\n",
    )
    store = ConversationStore.open(home.database, home.backups)
    one, two = store.by_name("one"), store.by_name("two")
    store.close()
    assert (one.tags, one.pinned, one.archived is None) == (("work",), True, False)
    assert (two.trashed, two.pinned) == (None, False)
    assert [len(request.lines) for request in result.engine.requests] == [1, 1, 3], "two goes on after it came back"
    assert "say swordfish" in result.out
    assert "no message has these words" in result.out
    assert result.answers().count("none") == 2, "the list while all is archived, and the trash in the end"
    assert "(in the trash)" in result.out
    assert "#work" in result.err
    assert "has no tags" in result.err


def test_search_is_narrowed(home):
    """Filters work inside a chat as elsewhere; a mistake is a sentence, and /search alone says which there are."""
    result = chat(home, "/new one\nsay swordfish\n/search sword role:user\n/search sword role:usr\n/search\n")
    assert result.out.count("    say swordfish") == 1
    assert "did you mean role:user?" in result.err
    assert "tag:work" in result.err


def test_what_filing_refuses(home):
    """Without a stored conversation there is nothing to pin; an unusable tag and an unknown name are sentences."""
    result = chat(home, "/pin\n/trash nothing\n/search\nsay A\n/tag a,b\n/tag -\n")
    assert "nothing was said" in result.err
    assert 'no conversation is called "nothing"' in result.err
    assert "words of a message" in result.err
    assert "cannot be a tag" in result.err
    assert "takes away the tag" in result.err


def test_retry_and_continue(home):
    """An answer is made again beside the old one, with another seed; one that was cut goes on where it stands."""
    result = chat(home, "say A\n/retry\n/continue\n", session="s")
    first, second, third = result.engine.requests
    assert second.lines == first.lines[:1] or [line.text for line in second.lines] == ["say A"]
    assert second.sampling.seed == first.sampling.seed + 1
    assert third.lines[-1].role == "assistant"
    store = ConversationStore.open(home.database, home.backups)
    path = store.path(store.by_name("s").id)
    assert path[-1].text == "Amore"
    assert len(store.shown_versions(path[-1].id)) == 2
    store.close()


def test_settings_of_the_conversation(home):
    """Sampling, model and system prompt are shown and changed, before and after the first question; mistakes are named."""
    result = chat(
        home,
        "/set temperature 0.5\n/set seed 3\n/system Be brief.\n/set temperature 0.25\n/system\nsay A\n/set temperature 1\n"
        "/set\n/set temprature 1\n/set temperature hot\n/set temperature\n/model\n/model /no.gguf\nsay B\n",
    )
    one, two = result.engine.requests
    assert (one.sampling.temperature, one.sampling.seed) == (0.25, 3)
    assert one.lines[0].text == "Be brief."
    assert two.sampling.temperature == 1.0
    assert two.model.name == "/no.gguf"
    assert "Be brief." in result.out
    assert "temperature = 1.0" in result.out
    assert "starter" in result.out
    assert '"temperature"' in result.err
    assert "hot" in result.err
    assert "write /set KEY VALUE" in result.err


def test_another_system_prompt_in_the_middle(home):
    """The price is said, the words go on below the new prompt, and the old path is a version that can be looked at."""
    result = chat(home, "/system One.\nsay A\n/system Two.\nsay B\n/branch 1\n/system\n")
    lines = [line.text for line in result.engine.requests[1].lines]
    assert lines == ["Two.", "say A", "A", "say B"]
    assert "are computed again" in result.err
    assert result.out.rstrip("you> \n").endswith("One.")


def test_a_person_is_asked_before_the_system_prompt_changes(home):
    """At a terminal, anything but yes leaves it."""
    source = Terminal("/system One.\nsay A\n/system Two.\nn\n/system\n")
    assert "Two." not in chat(home, "", source=source).out


def test_stop_strings_by_set(home):
    """A list is read as TOML, a bare word as text."""
    result = chat(home, '/set stop ["END", "\\n\\n"]\nsay A\n')
    assert result.engine.requests[0].sampling.stop == ("END", "\n\n")


def test_stats(home):
    """The engine's state is shown like `localkv stats` shows it."""
    assert "prompt tokens" in chat(home, "say A\n/stats\n").out


def test_unload(home):
    """The model is let go of between two questions, and the second is answered all the same."""
    result = chat(home, "say A\n/unload\nsay B\n")
    assert "fake is unloaded, 5.0 GiB are free again" in result.err
    assert result.engine.calls.index("unload") < result.engine.calls.index("turn say B")


def test_session_is_opened_or_begun(home):
    """--session opens a conversation with its last question and answer, or begins one of that name."""
    chat(home, "say A\n", session="s")
    assert [name for name, _, _ in names(home)] == ["s"]
    result = chat(home, "say B\n", session="s", model="/other.gguf")
    assert "you> say A\nassistant> A\n" in result.out
    assert result.engine.requests[0].model.name == "/other.gguf"
    assert len(result.engine.requests[0].lines) == 3


def test_session_in_the_trash_is_refused(home):
    """A name that is taken by a deleted conversation is told at once, not with the first question."""
    chat(home, "say A\n/delete\n", session="s")
    with pytest.raises(UnknownConversation, match="trash"):
        chat(home, "", session="s")


def test_model_is_loaded_before_the_first_question(home):
    """The wait for the model comes before the prompt, and its notes are told."""
    result = chat(home, "")
    assert result.engine.calls[0] == "prepare starter"
    assert "[localkv] starter on cpu" in result.err


def test_failures_are_told_and_the_chat_goes_on(home):
    """A turn that fails is a sentence; in a pipe the exit code tells if the last one failed."""
    result = chat(home, "full\nsay A\n")
    assert "200 tokens" in result.err
    assert result.code == 0
    assert chat(home, "full\n").code == 1
    assert chat(home, "", source=Terminal("full\n")).code == 0


def test_ctrl_c_stops_the_answer(home):
    """Ctrl+C while an answer streams stops it, keeps it, and the chat goes on."""
    runtime = CountingRuntime()
    play = runtime.play

    def playing(words, emit, same, cancelled):
        if "wait" in words:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        return play(words, emit, same, cancelled)

    runtime.play = playing
    result = chat(home, "say Half wait\nsay Whole\n", runtime=runtime)
    assert result.answers() == "Half\nWhole\n\n"
    assert "/continue goes on" in result.err


class Pressing(io.StringIO):
    """Input in which Ctrl+C is pressed at the places of "^C"."""

    def readline(self, size=-1):
        line = super().readline(size)
        if line == "^C\n":
            raise KeyboardInterrupt
        return line


def test_ctrl_c_at_the_prompt(home):
    """Once is a hint, twice in a row leaves; a message between them starts the count anew."""
    result = chat(home, "", source=Pressing("^C\nsay A\n^C\n^C\nsay B\n"))
    assert result.code == 130
    assert [request.lines[-1].text for request in result.engine.requests] == ["say A"]
    assert result.out.count("once more") == 2


def break_database(face):
    """From now on nothing of a turn can be stored."""

    def refuse(*_, **__):
        raise NotWritable("the disk is full")

    store = face.talk.store
    face.ensure()
    for name in ("ask", "begin_answer", "finish_answer", "checkpoint_answer"):
        setattr(store, name, refuse)


@pytest.mark.parametrize(("answer", "asked"), [("y", 1), ("YES ", 1), ("n\nsay B\n/quit\ny", 2)])
def test_quitting_asks_if_text_would_be_lost(home, answer, asked):
    """With an answer that the database refuses, /quit asks; the answer was shown all the same, and the exit code is 1."""
    result = chat(home, f"say A\n/quit\n{answer}\n", change=break_database)
    assert result.answers().startswith("A\n")
    assert "UNSAVED" in result.err
    assert result.out.count("lose that text?") == asked
    assert result.code == 1


@pytest.mark.parametrize("answer", ["", " ", "no", "what?"])
def test_only_a_yes_loses_text(home, answer):
    """Whatever is no yes, an empty line above all, goes on with the chat: its capital N is what Enter means."""
    result = chat(home, f"say A\n/quit\n{answer}\nsay B\n", change=break_database)
    assert "B" in result.answers().split()


def test_quitting_ends_with_the_input(home):
    """Where the input ends at the question nobody can answer any more: the chat ends and does not ask for ever."""
    result = chat(home, "say A\n/quit\n", change=break_database)
    assert result.out.count("lose that text?") == 1
    assert result.code == 1


def test_ctrl_c_twice_says_what_is_not_saved(home):
    """Whoever leaves with Ctrl+C has unsaved text tried again first, and is told if it is lost."""
    result = chat(home, "", source=Pressing("say A\n^C\n^C\n"), change=break_database)
    assert result.code == 130
    assert "[localkv] not saved: the disk is full" in result.err


def test_erasing_goes_on_though_the_disk_refuses(home, monkeypatch):
    """/erase removes text and cached state also where the bytes must wait, and says why they do."""

    def refuse(_):
        raise NotWritable("the disk is full")

    def erase(face):
        monkeypatch.setattr(Erasures, "complete", refuse)
        face.take("/erase")

    forgotten = []
    monkeypatch.setattr(plain, "forget_through", lambda *given: forgotten.append(given[1]) or Freed())
    result = chat(home, "say B\n", session="one", change=lambda face: (face.take("say A"), erase(face)))
    assert '"one" is removed' in result.err
    assert "the disk is full" in result.err
    assert len(forgotten) == 1
    assert [name for name, _, _ in names(home)] != ["one"]


def test_quit(home):
    """/quit leaves at once when everything is saved."""
    result = chat(home, "say A\n/quit\nsay B\n")
    assert result.code == 0
    assert len(result.engine.requests) == 1


def said(home, name):
    """The texts on the path of a conversation."""
    store = ConversationStore.open(home.database, home.backups)
    try:
        return [message.text for message in store.path(store.by_name(name).id)]
    finally:
        store.close()


def test_edit_and_branch(home):
    """A question asked in other words stands beside the old one; /branch shows both and goes back, with what followed."""
    result = chat(home, "say A\nsay B\n/edit say C\n/branch\n/branches\n/branch 1\n/branch 9\n/branch x\n", session="s")
    assert [line.text for line in result.engine.requests[-1].lines] == ["say A", "A", "say C"]
    assert "  1/2  You: say B\n> 2/2  You: say C\n" in result.out
    assert ">     4  Answer: C\n      4  Answer: B\n" in result.out
    assert said(home, "s") == ["say A", "A", "say B", "B"]
    assert "has 2 versions" in result.err
    assert '"x" is no number' in result.err


def test_edit_asks_for_the_words(home):
    """Without words, /edit shows the question and reads the new one."""
    result = chat(home, "say A\n/edit\nsay B\n", session="s")
    assert "You: say A\ninstead> B" in result.out
    assert said(home, "s") == ["say B", "B"]


def test_fork_goes_on_beside_the_old_one(home):
    """What is said after /fork is said in the new conversation; what the engine gets begins as before."""
    result = chat(home, "say A\n/fork side\nsay B\n", session="s")
    assert [line.text for line in result.engine.requests[-1].lines] == ["say A", "A", "say B"]
    assert said(home, "s") == ["say A", "A"]
    assert said(home, "side") == ["say A", "A", "say B", "B"]


def test_prune_and_undo(home):
    """What is taken away comes back, the last first, whatever it was."""
    chat(home, "say A\nsay B\n/prune\n/prune\n/delete\n/undo\n/undo\n", session="s")
    assert said(home, "s") == ["say A", "A", "say B"]


def test_find_and_copy(home):
    """Places are printed with their number, code alone."""
    result = chat(home, "say A needle and a needle\n/find NEEDLE\n/find nothing\n/copy\n/copy 1\n", session="s")
    assert "1/2  You: say A needle and a needle\n2/2" in result.out
    assert "not found" in result.out
    assert "has 0 blocks" in result.err


def test_commands_about_messages_before_the_first_one(home):
    """Each says that nothing was said yet."""
    result = chat(home, "/find x\n/copy\n/edit x\n/fork\n/branch\n/branches\n/prune\n/undo\n")
    assert result.err.count("nothing was said in this conversation yet") == 7
    assert names(home) == []


def test_attach_goes_with_the_next_message_alone(home, tmp_path):
    """/attach reads a file now and sends it with the next message; a refusal says why."""
    (tmp_path / "a.py").write_text("x = 1\n")
    result = chat(home, f"/attach {tmp_path}/a.py\n/attach {tmp_path}/b.py\nsay Hello\nsay World\n")
    texts = [request.lines[-1].text for request in result.engine.requests]
    assert texts == [f"File: {tmp_path}/a.py\n```python\nx = 1\n```\n\nsay Hello", "say World"]
    assert "(5 B) goes with the next message" in result.err
    assert 'did you mean "a.py"' in result.err


def test_queue(home):
    """What waits from the screen is told of, listed, forgotten by number, and asked in order."""

    def wait(face):
        face.take("say Hello")
        face.talk.store.set_queue(face.opened.id, ["say One", "say Two", "say Three"])

    result = chat(home, "/queue\n/queue delete 2\n/queue delete 7\n/queue send\n/queue\n", change=wait)
    assert "1  say One\n2  say Two\n3  say Three" in result.out
    assert "1 to 2" in result.err
    assert [request.lines[-1].text for request in result.engine.requests] == ["say Hello", "say One", "say Three"]
    assert "no message waits" in result.out
    assert "/queue shows them" in chat(home, f"/open {names(home)[0][0]}\n", change=_one_waits).err


@pytest.mark.parametrize("action", [action for action in PLAIN_COMMANDS if "|" in action.arguments])
def test_every_word_that_help_shows_is_taken(home, action):
    """What help shows behind a command is done in plain mode, too."""
    for word in action.arguments.strip("[]").split(" | "):
        result = chat(home, f"say A\n/{action.slash} {word.replace('N', '1')}\nsay B\n", change=_two_wait)
        assert f"write /{action.slash}" not in result.err, word


@pytest.mark.parametrize("command", ["/branch", "/copy", "/queue delete", "/queue edit"])
@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 5_000], ids=["0", "-1", "x", "long"])
def test_numbers_that_are_none_are_refused(home, command, number):
    """Whatever is written where a number belongs, a sentence comes back, and the chat goes on."""
    result = chat(home, f"say A\n/retry\n{command} {number}\nsay B\n", change=_two_wait)
    assert any(words in result.err for words in ("no number", "write a number", "write the number"))
    assert len(result.err) < 3_000
    assert "B" in result.answers().split()


def test_a_message_that_waits_is_written_anew(home):
    """/queue edit N shows all of it and takes other words at its place; an empty line changes nothing."""
    lines = "/queue edit 1\nsay Uno\\\nsay Due\n/queue edit 2\n\n/queue edit 3\n/queue send\n"
    result = chat(home, lines, change=_two_wait)
    assert "say One\nand more\ninstead> " in result.out
    assert "1 to 2" in result.err
    assert [request.lines[-1].text for request in result.engine.requests] == ["say Hello", "say Uno\nsay Due", "say Two"]


def _two_wait(face):
    face.take("say Hello")
    face.talk.store.set_queue(face.opened.id, ["say One\nand more", "say Two"])


def _one_waits(face):
    conversation = face.talk.store.list()[0]
    face.talk.store.set_queue(conversation.id, ["say Four"])
