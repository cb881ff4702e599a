"""`localkv sessions`: what it prints, what it refuses, and what a terminal gets to see."""

import json

import pytest
from typer.testing import CliRunner

from localkv.chat.erasures import Erasures
from localkv.chat.store import ConversationStore
from localkv.chat.visible import one_line
from localkv.commands import sessions
from localkv.commands.sessions import app, render_list
from localkv.commands.setup import find_setup
from localkv.config import ModelSection, SamplingSection
from localkv.errors import EngineUnavailable, NotWritable
from localkv.kv.record import pack_ids
from localkv.paths import find_home
from localkv.tiers.upkeep import Freed


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALKV_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    home = find_home()
    home.prepare()
    return home


@pytest.fixture
def store(home):
    store = ConversationStore.open(home.database, home.backups)
    yield store
    store.close()


@pytest.fixture
def talk(store):
    """A conversation with a hostile answer on its current branch and another branch beside it."""
    known = store.create("talk", model=ModelSection(), sampling=SamplingSection(), system="be brief")
    question = store.ask(known.id, None, "What is a monad?")
    store.begin_answer(known.id, question.id)
    answer = store.begin_answer(known.id, question.id)
    store.finish_answer(
        answer.id,
        text="\x1b]0;owned\x07a \u202ebox\x9b2J",
        ids=pack_ids([1, 2, 3]),
        state="stopped",
        head=None,
        numbers={"n": 1},
    )
    return known


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_list(talk):
    """Name, count, model and title of each conversation on one line."""
    result = run("list")
    assert result.exit_code == 0
    head, line = result.stdout.splitlines()
    assert head.split() == ["NAME", "MESSAGES", "AGE", "MODEL", "TITLE"]
    assert line.split() == ["talk", "3", "now", "starter", "What", "is", "a", "monad?"]


def test_list_json(talk, store):
    """Programs get one document with every conversation, and those in the trash only when asked for."""
    (found,) = json.loads(run("list", "--json").stdout)
    assert (found["session"], found["id"], found["messages"]) == ("talk", talk.id, 3)
    store.trash(talk.id)
    assert json.loads(run("list", "--json").stdout) == []
    assert len(json.loads(run("list", "--json", "--all").stdout)) == 1
    assert "in the trash" in run("list", "--all").stdout


def test_an_empty_list_says_what_to_do(home):
    """A new user gets a sentence, not an empty table."""
    result = run("list")
    assert (result.exit_code, "localkv chat" in result.stdout) == (0, True)


def test_an_empty_list_says_where_the_others_are(many):
    """Whoever has put all conversations away is not told that there are none."""
    run("archive", "a"), run("archive", "b"), run("trash", "c")
    assert run("list").stdout == "none; 2 in the archive, 1 in the trash: --all shows them\n"
    assert run("list", "--tag", "x").stdout == "none\n"
    assert run("list", "--all").exit_code == 0
    run("empty-trash"), run("rm", "a"), run("rm", "b")
    assert "no conversations yet" in run("list").stdout
    assert "no conversations yet" in run("list", "--all").stdout


def test_show(talk):
    """The current branch is printed from the first message on, with how an answer ended."""
    result = run("show", "talk")
    assert result.exit_code == 0
    assert "talk: What is a monad? (starter)" in result.stdout
    assert "System:\nbe brief\n\nYou:\nWhat is a monad?\n\nAnswer (stopped):\n" in result.stdout


def test_nothing_that_a_terminal_obeys_is_printed(talk, store):
    """A model's answer or a title can't drive the terminal through list, show or JSON."""
    store.rename(talk.id, title="x")
    for arguments in (["show", "talk"], ["show", "talk", "--json"], ["list"], ["list", "--json"], ["show", "\x1b[2J"]):
        result = run(*arguments)
        assert not set(result.stdout + result.stderr) & set("\x1b\x07\x9b\u202e"), arguments
    assert "^[]0;owned^Ga \\u202ebox\\x9b2J" in run("show", "talk").stdout


def test_show_json_keeps_the_text_exactly(talk):
    """What a terminal must not see, a program gets unchanged."""
    document = json.loads(run("show", "talk", "--json").stdout)
    assert [each["role"] for each in document["path"]] == ["system", "user", "assistant"]
    answer = document["path"][-1]
    assert answer["text"] == "\x1b]0;owned\x07a \u202ebox\x9b2J"
    assert (answer["tokens"], answer["state"], answer["numbers"]) == (3, "stopped", {"n": 1})


@pytest.mark.parametrize("arguments", [["show", "tolk"], ["rename", "tolk", "x"], ["rm", "tolk"], ["show", "tolk", "--json"]])
def test_unknown_names_exit_2_with_the_nearest(talk, store, arguments):
    """A typing error is answered with what was meant, on stderr, and changes nothing."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert (result.stdout, '"talk"' in result.stderr) == ("", True)
    assert [each.name for each in store.list()] == ["talk"]


def test_rename(talk, store):
    """The conversation answers to its new name and keeps everything else."""
    assert run("rename", "talk", "monads").exit_code == 0
    assert store.by_name("monads").id == talk.id
    assert json.loads(run("rename", "monads", "again", "--json").stdout)["session"] == "again"


def test_rename_to_a_taken_or_unusable_name(talk, store):
    """Both are the caller's mistake: exit 2, and nothing changed."""
    store.create("other", model=ModelSection(), sampling=SamplingSection())
    assert run("rename", "talk", "other").exit_code == 2
    assert run("rename", "talk", "a\nb").exit_code == 2
    assert store.get(talk.id).name == "talk"


def test_rm(talk, store):
    """Removed means removed: the name is free again at once."""
    result = run("rm", "talk")
    assert (result.exit_code, result.stdout) == (0, '"talk" is removed (3 messages, 0 cached records, 0 B).\n')
    assert store.list(include_trashed=True) == []
    assert run("rm", "talk", "--json").exit_code == 2
    store.create("talk", model=ModelSection(), sampling=SamplingSection())
    assert json.loads(run("rm", "talk", "--json").stdout)["session"] == "talk"


def empty_the_trash(store, talk):
    store.trash(talk.id)
    return ["empty-trash"]


def empty_the_trash_of_branches(store, talk):
    store.take_away(store.path(talk.id)[-1].id)
    return ["empty-trash"]


removals = pytest.mark.parametrize("removal", [lambda *_: ["rm", "talk"], empty_the_trash, empty_the_trash_of_branches])


@removals
def test_nothing_is_removed_without_the_settings(home, talk, store, removal):
    """Cached state is removed through the settings: if they cannot be read that is said while everything is still there."""
    arguments, before = removal(store, talk), store.token_logs()
    home.config_file.write_text("[engine")
    result = run(*arguments)
    assert (result.exit_code, "config.toml" in result.stderr) == (2, True)
    assert store.token_logs() == before
    assert len(store.list(include_trashed=True)) == 1


@removals
def test_settings_of_the_command_line_count(home, talk, store, removal, tmp_path):
    """`localkv --config FILE sessions` removes with that file, also while the home's own cannot be read."""
    arguments = removal(store, talk)
    home.config_file.write_text("[engine")
    file = tmp_path / "other.toml"
    file.write_text("")
    assert CliRunner().invoke(app, arguments, obj=find_setup(file)).exit_code == 0


@removals
def test_cached_state_that_stays_is_said(talk, store, removal, monkeypatch):
    """If the text is gone and the cache refuses, both are said, with the way to remove the rest."""

    def refuse(*_):
        raise EngineUnavailable("the engine ended just now")

    arguments = removal(store, talk)
    monkeypatch.setattr(sessions, "forget", refuse)
    result = run(*arguments)
    assert result.exit_code == 1
    assert all(words in result.stderr for words in ("the text is removed", "the engine ended", "localkv gc"))


@removals
def test_a_disk_that_refuses_keeps_bytes_and_no_cached_state(talk, store, removal, monkeypatch):
    """What keeps the bytes of removed text in the file is said, and is no reason to leave the cached state."""
    arguments, forgotten = removal(store, talk), []

    def refuse(_):
        raise NotWritable("the disk is full")

    monkeypatch.setattr(Erasures, "complete", refuse)
    monkeypatch.setattr(sessions, "forget", lambda *given: forgotten.append(given[2]) or Freed())
    result = run(*arguments)
    assert (result.exit_code, "the disk is full" in result.stderr) == (0, True)
    assert "removed" in result.stdout
    assert len(forgotten) == 1


def test_a_damaged_database_exits_1_with_a_sentence(home):
    """A failure that is not about the name has another exit code, and no traceback."""
    home.database.write_bytes(b"not a database " * 500)
    result = run("list")
    assert result.exit_code == 1
    assert "damaged" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_sentence_about_a_hostile_path_is_harmless(tmp_path, monkeypatch):
    """Folder names come from archives and other people; errors that name them don't drive the terminal either."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALKV_HOME", str(tmp_path / "a\x1b[2Jb"))
    find_home().prepare()
    find_home().database.write_bytes(b"not a database " * 500)
    assert "a^[[2Jb" in run("list").stderr


def test_columns_line_up_for_wide_characters(store):
    """CJK names take two cells a character; the columns after them stay straight."""
    for name in ("字字字", "abc"):
        store.create(name, model=ModelSection(), sampling=SamplingSection(), title="T")
    lines = render_list(store.list(), 0.0).splitlines()
    assert lines[1].startswith("abc     0")
    assert lines[2].startswith("字字字  0")


def test_one_line():
    """A cell of a table never breaks the table."""
    assert one_line(" a\nb\t\x1bc ") == "a b ^[c"


# ---- order among conversations ----


@pytest.fixture
def many(store):
    """Three conversations; "b" is the oldest and the longest."""
    keys = {}
    for name, n_tokens in (("b", 9), ("a", 1), ("c", 3)):
        keys[name] = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
        question = store.ask(keys[name], None, f"the word of {name} is needle\x1b[2J")
        store.set_ids(question.id, pack_ids(range(n_tokens)))
    return keys


def listed(*arguments):
    """Names as JSON lists them."""
    return [each["session"] for each in json.loads(run("list", "--json", *arguments).stdout)]


@pytest.mark.parametrize("there", [True, False])
def test_every_change_has_its_way_back(many, store, there):
    """Each change and its opposite, twice: the second time it is no failure."""
    pairs = {"pin": "unpin", "archive": "unarchive", "trash": "untrash"}
    for change, back in pairs.items():
        for command in (change, change, *((back, back) if there else ())):
            assert run(command, "a", "--json").exit_code == 0
    known = store.by_name("a")
    assert (known.pinned, known.archived is None, known.trashed is None) == (
        (False, True, True) if there else (True, False, False)
    )


def test_tags(many, store):
    """Tags are added and taken away, with or without "#", and shown; what is no tag is refused with exit code 2."""
    assert json.loads(run("tag", "a", "#Work", "rust", "--json").stdout)["tags"] == ["rust", "work"]
    assert "#rust #work" in run("list").stdout
    assert "no tags" in run("untag", "a", "WORK", "#rust", "other").stdout
    assert run("tag", "a", "b,c").exit_code == 2
    assert store.by_name("a").tags == ()


def test_lists_of_one_place(many):
    """The list hides archive and trash; each has its own; --all has everything; --tag narrows any of them."""
    run("archive", "a"), run("trash", "b"), run("tag", "a", "x"), run("tag", "b", "x")
    assert listed() == ["c"]
    assert listed("--archived") == ["a"]
    assert listed("--trash") == ["b"]
    assert sorted(listed("--all")) == ["a", "b", "c"]
    assert sorted(listed("--all", "--tag", "#X")) == ["a", "b"]
    assert listed("--tag", "x") == []
    assert run("list", "--tag", "x").stdout == "none\n"
    assert "(archived)" in run("list", "--archived").stdout


def test_the_list_is_not_only_by_age(many):
    """By age, name and size; pinned ones stand first in any order; an unknown order is refused and the orders are named."""
    assert listed() == ["c", "a", "b"]
    assert listed("--sort", "name") == ["a", "b", "c"]
    assert listed("--sort", "size") == ["b", "c", "a"]
    run("pin", "a")
    assert listed("--sort", "size") == ["a", "b", "c"]
    wrong = run("list", "--sort", "colour")
    assert (wrong.exit_code, "newest, name, size" in wrong.stderr) == (2, True)


def test_search(many, store):
    """Hits with their place; nothing of them steers a terminal; what is in the trash is not found."""
    found = json.loads(run("search", "needle word", "--json").stdout)
    assert [each["session"] for each in found] == ["c", "a", "b"]
    first = found[0]
    assert [first["snippet"][start:end] for start, end in first["marks"]] == ["word", "needle"]
    assert first["message"] == store.path(many["c"])[0].id
    printed = run("search", "needle").stdout
    assert "\x1b" not in printed
    assert "the word of c is needle^[[2J" in printed
    run("trash", "c")
    assert len(json.loads(run("search", "needle", "--json").stdout)) == 2
    assert len(json.loads(run("search", "needle", "--json", "--limit", "1").stdout)) == 1
    assert run("search", "nowhere").stdout == "No message has these words.\n"


def test_search_with_filters(many, store):
    """Filters are words of the command; a mistake is a sentence and exit code 2; copies are named, for people and programs."""
    run("tag", "a", "work")
    assert [each["session"] for each in json.loads(run("search", "needle", "tag:work", "--json").stdout)] == ["a"]
    assert json.loads(run("search", "role:system", "--json").stdout) == []
    assert json.loads(run("search", "needle", "before:2001-01-01", "--json").stdout) == []
    for wrong, meant in (("rol:user", "role:"), ("before:2026-1-5", "before:2026-01-05"), ("role:usr", "role:user")):
        refused = run("search", wrong, "needle", "--json")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"did you mean {meant}" in refused.stderr
    store.fork(store.path(many["a"])[0].id, "fork")
    (found,) = json.loads(run("search", "needle", "tag:work", "--json").stdout)
    assert sorted([found["session"], *found["also_in"]]) == ["a", "fork"]
    assert "(also in 1 other conversation)\n" in run("search", "tag:work needle").stdout
    assert "role:user" in run("search", "--help").stdout


def test_conversations_are_not_out_of_reach_without_the_screen(many):
    """Nobody needs the screen to find, name, read and delete what can be resumed."""
    assert listed() == ["c", "a", "b"]
    assert run("rename", "a", "z").exit_code == 0
    assert "needle" in run("show", "z").stdout
    assert run("rm", "z").exit_code == 0
    assert listed() == ["c", "b"]


def test_emptying_the_trash_takes_all_of_it(many):
    """All conversations in the trash go in one step, with the words of their messages; the others stay."""
    run("trash", "a"), run("trash", "b")
    assert len(json.loads(run("empty-trash", "--json").stdout)["removed"]) == 2
    assert listed("--all") == ["c"]
    assert len(json.loads(run("search", "needle", "--json").stdout)) == 1
    assert json.loads(run("empty-trash", "--json").stdout)["removed"] == []
