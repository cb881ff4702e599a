"""Hostile sizes and kinds of text: each works, or is refused with a sentence."""

import contextlib
import subprocess
import sys
import time

import pytest

from localkv.chat.store import ConversationStore
from localkv.chat.tree import TITLE_LENGTH
from localkv.chat.visible import visible
from localkv.commands.say import Wish
from localkv.commands.say import run as say_it
from localkv.commands.setup import find_setup
from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import ConfigError, UnusableName
from localkv.service.protocol import Line, Submit, decode_request, encode
from localkv.tui.desk import Desk
from localkv.tui.listing import matching, to_item
from localkv.tui.listline import Look, line
from tests.commands.engine import CountingRuntime, serving

MEGABYTE = "The quick brown fox; größer, 速い. " * 30_000
KINDS = {
    "megabyte": MEGABYTE,
    "no spaces": "x" * 300_000,
    "one wide line": "字" * 100_000,
    "only emoji": "👩\u200d👩\u200d👧🇩🇪" * 5_000,
    "right to left": "שלום עולם مرحبا " * 2_000,
    "combining": "e" + "\u0301" * 20_000,
    "nul": "a\0b\0c",
    "controls": "".join(map(chr, range(32))) * 100,
    "newlines": "\n" * 50_000 + "end",
    "surrogates": "\ud800x\udfff",
}


@pytest.fixture
def store(home):
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as opened:
        yield opened


def begin(store, name="s", **options):
    return store.create(name, model=ModelSection(), sampling=SamplingSection(), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_any_kind_is_stored_as_it_is(store, kind):
    """Stored and read back whole (lone surrogates, which are no text, become U+FFFD), with a title of one short harmless line."""
    text = KINDS[kind]
    key = begin(store).id
    store.ask(key, None, text)
    (found,) = store.path(key)
    assert found.text == text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
    title = store.get(key).title
    assert len(title) <= TITLE_LENGTH
    assert visible(title) == title
    assert "\n" not in title


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_any_kind_reaches_the_engine_and_comes_back(home, kind, capfd):
    """`say` with the text on standard input: the engine gets exactly it, in one frame, and the answer is stored."""
    with serving(home, CountingRuntime()) as engine:
        done = subprocess.run(
            [sys.executable, "-m", "localkv", "say", "-", "--session", "s", "--new", "--json"],
            input=(KINDS[kind] + " say ok").encode("utf-8", "replace"), capture_output=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sent = engine.requests[0].lines[-1].text
    assert sent.endswith(" say ok")
    assert len(sent) == len(KINDS[kind].encode("utf-8", "replace").decode()) + 7


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u3000\t"])
def test_nothing_is_refused_with_a_sentence(home, text):
    """An empty message is not sent, and no conversation is made for it."""
    with pytest.raises(ConfigError, match="nothing to say"):
        say_it(find_setup(), Wish(text, "s", new=True), as_json=False)
    assert not home.database.exists()


def test_a_frame_holds_the_longest_conversation():
    """128k tokens with their text are far below the cap."""
    line_ = Line(role="user", text="word " * 128_000, ids=bytes(4 * 128_000))
    request = Submit(request=1, conversation="c", model=ModelSection(), sampling=SamplingSection(), lines=(line_,) * 8)
    assert decode_request(encode(request)) == request


@pytest.mark.parametrize(
    "title", ["t" * 10_000, "wort " * 2_000, "字" * 10_000, "\x1b]0;x\x07" * 500, "\0" * 100, "👨\u200d👩\u200d👧" * 3000]
)
def test_a_title_of_any_length_is_one_short_line(store, title):
    """Stored short, listed on one line, and shown in a list of any width."""
    from localkv.paths import resource_dir
    from localkv.tui.glyphs import DRAWN
    from localkv.tui.theme import choose_theme, palette, read_themes

    key = begin(store, title=title).id
    store.rename(key, title=title)
    item = to_item(store.get(key))
    themes, _ = read_themes([resource_dir("themes")])
    colours = palette(choose_theme(themes, "localkv-dark")[0])
    for width in (1, 5, 20, 80):
        assert line(item, width, Look(time.time(), colours, DRAWN)) is not None
    assert len(store.get(key).title) <= TITLE_LENGTH


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb", "a\0b", "\x1b[2J", "\u202ex", "a\u200bb"])
def test_names_that_cannot_be_typed_are_refused(store, name):
    """A name is what people type after --session: too long, invisible or steering ones are refused with a sentence."""
    with pytest.raises(UnusableName, match="cannot be the name"):
        begin(store, name)


@pytest.mark.parametrize("name", ["x" * 100, "字" * 100, "émoji 🙂", "שלום", "e\u0301\u0301"])
def test_names_in_any_script_work(store, name):
    """What can be typed is a name."""
    assert store.by_name(begin(store, name).name).name == name


@pytest.mark.slow
def test_ten_thousand_conversations(store):
    """They are listed, filtered, opened by name, and new ones get free names."""
    connection = store._database._connection
    base = begin(store, "base")
    store.ask(base.id, None, "hello")
    columns = "title, model, sampling, created, updated, pinned, trashed, n_messages, draft, system, private"
    connection.execute("BEGIN")
    connection.executemany(
        f"INSERT INTO conversations (id, name, {columns}) SELECT ?, ?, {columns} FROM conversations WHERE id = ?",
        ((f"{i:032x}", f"talk {i}", base.id) for i in range(10_000)),
    )
    connection.execute("COMMIT")
    desk = Desk(store, Config())
    items = desk.items()
    assert len(items) == 10_001
    assert len(matching(items, "hello")) == 10_001
    desk.open_named("talk 9999")
    assert desk.ensure().name == "talk 9999"
    assert store.by_name("talk 1234").id == f"{1234:032x}"
    assert len({begin(store, desk._free_name()).name for _ in range(3)}) == 3
    assert [log for _, log in store.token_logs() if log] == [], "nothing is tokenised yet"


@pytest.mark.slow
def test_a_conversation_of_a_hundred_thousand_messages(store):
    """It opens, is asked in, gives its token log, is verified and is erased."""
    from localkv.chat.audit import audit_conversations

    n, key = 100_000, begin(store).id
    connection = store._database._connection
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO messages (id, conversation, parent, role, state, created, text, ids) VALUES (?,?,?,?,?,?,?,?)",
        (
            (f"m{i}", key, f"m{i - 1}" if i else None, ("user", "assistant")[i % 2], "complete", 0.0, f"text {i}", b"1234")
            for i in range(n)
        ),
    )
    connection.execute("UPDATE conversations SET n_messages = ?", (n,))
    connection.execute("COMMIT")
    store.set_leaf(key, f"m{n - 1}")
    assert len(store.path(key)) == n
    desk = Desk(store, Config())
    desk.open(key)
    assert len(desk.messages) == 32, "the end of it is on screen before the rest is read"
    store.ask(key, f"m{n - 1}", "one more")
    ((_, log),) = store.token_logs(key)
    assert len(log) == 4 * n
    assert audit_conversations(store._database.path).flaws == []
    store.erase(key)
    assert store.list() == []
