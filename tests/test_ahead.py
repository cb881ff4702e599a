"""Work ahead of a turn changes when things are computed and nothing else: the same bits, the same accounts, and it gives way at once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localkv.ahead import Ahead, settled, wanted_now
from localkv.config import ModelSection
from localkv.engine import arithmetic
from localkv.kv.record import Head, unpack_ids
from localkv.messages import Done, Forget, Line, Typing, Want, Warm
from localkv.runtime import Runtime
from tests.engine.tiny_engine import ask, make, runtime_of

pytestmark = pytest.mark.slow

KINDS = ("llama", "gemma3_text", "falcon_h1", "mamba2")
"""Full attention, sliding windows beside it, rows and states in one layer, states alone."""

WORDS = "the quick brown fox jumps over the lazy dog and then it sleeps in the warm sun until the evening comes "
LONG = WORDS * 2
"""Some 150 tokens: nine blocks."""


class Story:
    """A conversation with one answer, which each test goes on with from the same point."""

    def __init__(self, runtime: Runtime, name: str = "story") -> None:
        self.runtime = runtime
        self.name = name
        self.section: ModelSection = runtime.opened.loaded.section  # type: ignore[union-attr]
        done, self.lines = ask(runtime, "tell me about the harbour in winter " * 2, name=name)
        self.head: Head | None = done.head
        self.told: dict[str, Done] = {}

    def type(self, text: str, *, steps: int | None = None) -> None:
        """The person writes `text` and rests; the engine works `steps` steps, by default until it is done."""
        typing = Typing(request=0, conversation=self.name, model=self.section, lines=self.lines, text=text, head=self.head)
        self.runtime.hint(typing)
        work(self.runtime, steps)

    def send(self, text: str) -> Done:
        """What the person asks at last, from the same point each time."""
        done, _ = ask(self.runtime, text, lines=self.lines, head=self.head, name=self.name, keep_head=True)
        numbers = done.numbers
        assert numbers.restored.total + numbers.prefilled_tokens == numbers.prompt_tokens
        assert numbers.typed_tokens <= numbers.restored.slot
        return done

    def without_typing(self, text: str) -> Done:
        """The same question, with the conversation brought back from its records and nothing typed."""
        if text not in self.told:
            away(self.runtime)
            self.told[text] = self.send(text)
            assert self.told[text].numbers.typed_tokens == 0
        return self.told[text]


def work(runtime: Runtime, steps: int | None = None) -> int:
    """Let the engine do what it was hinted at; how many steps that took."""
    woke, done = threading.Event(), 0
    runtime.listen(woke.set)
    while runtime.ahead.is_busy and (steps is None or done < steps):
        woke.clear()
        done += 1
        if not runtime.idle() and runtime.ahead.is_busy:
            assert woke.wait(30)
    return done


def away(runtime: Runtime) -> None:
    """Another conversation is asked."""
    ask(runtime, "something else", name="other", n_tokens=2)


def same(one: Done, other: Done) -> bool:
    """Whether two turns were the same in all bits: a head's name covers the bytes of all that leads to it."""
    heads = [done.head.name if done.head else None for done in (one, other)]
    return (one.ids, heads[0], one.numbers.exact) == (other.ids, heads[1], other.numbers.exact) and None not in heads


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make(kind, tmp_path_factory.mktemp(kind) / "model") for kind in (*KINDS, "jamba")}


@pytest.fixture(scope="module", params=KINDS)
def runtime(
    request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    with runtime_of(folders[request.param], tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture(scope="module")
def story(runtime: Runtime) -> Story:
    return Story(runtime)


@pytest.fixture
def llama(folders: dict[str, Path], tmp_path: Path) -> Iterator[Runtime]:
    with runtime_of(folders["llama"], tmp_path) as opened:
        yield opened


def test_typed_ahead_is_the_same_bits(story: Story) -> None:
    """A pasted message: all but its end is computed before it is sent, and neither answer nor state can tell."""
    expected = story.without_typing(LONG)
    away(story.runtime)
    story.type(LONG)
    done = story.send(LONG)
    assert same(done, expected)
    assert done.numbers.typed_tokens > 100
    assert done.numbers.prefilled_tokens < 40 < expected.numbers.prefilled_tokens


def test_an_edit_takes_the_slot_back(story: Story) -> None:
    """Something in the middle is changed after it was computed; then all is deleted and another question is asked."""
    edited, other = LONG.replace("lazy", "weary", 2), "what else"
    expected = [story.without_typing(text) for text in (edited, other)]
    for text, wanted in zip((edited, other), expected, strict=True):
        story.type(LONG)
        story.type(edited)
        assert same(story.send(text), wanted)
    story.type(LONG)
    story.type("")
    assert same(story.send(other), expected[1])


def test_sent_otherwise_than_typed(story: Story) -> None:
    """The last hint may be older than the message: what differs is computed anew."""
    sent = LONG[:90] + "but not like this"
    expected = story.without_typing(sent)
    story.type(LONG)
    assert same(story.send(sent), expected)


EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("type"), st.integers(0, len(LONG)), st.sampled_from(["", "x", " indeed so", " " + WORDS])),
        st.tuples(st.sampled_from(["stop early", "away", "open", "rest"]), st.integers(0, len(LONG)), st.just(" oh well ")),
    ),
    max_size=6,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(edits=EDITS, final=st.sampled_from([LONG, LONG[:70] + "and more", "short one"]))
def test_whatever_is_typed_the_answer_is_the_same(story: Story, edits: list[tuple[str, int, str]], final: str) -> None:
    """Edits, hints broken off after a step, other conversations in between: nothing of it is in the answer."""
    expected = story.without_typing(final)
    want = Want(conversation="other", ids=b"".join(line.ids for line in story.lines))
    for what, cut, more in edits:
        if what == "away":
            away(story.runtime)
        elif what in {"open", "rest"}:
            story.runtime.hint(Warm(request=0, model=story.section, wants=(want,), why=what))
            work(story.runtime, cut % 3)
        else:
            story.type(LONG[:cut] + more, steps=1 + cut % 3 if what == "stop early" else None)
    assert same(story.send(final), expected)


def test_a_turn_comes_after_one_chunk(story: Story) -> None:
    """Each step computes one chunk at most: whoever asks waits for no more than that."""
    away(story.runtime)
    live = story.runtime.opened.live  # type: ignore[union-attr]
    block = story.runtime.opened.block_tokens  # type: ignore[union-attr]
    typing = Typing(request=0, conversation=story.name, model=story.section, lines=story.lines, text=LONG, head=story.head)
    story.runtime.hint(typing)
    chunks = []
    while story.runtime.ahead.is_busy:
        before = live.forwarded_tokens
        work(story.runtime, 1)
        chunks.append(live.forwarded_tokens - before)
    assert max(chunks) <= block
    assert sum(chunks) > 100


def test_nothing_that_is_typed_is_kept_before_it_is_sent(llama: Runtime) -> None:
    """No record is made of it, in RAM or on SSD; what was edited away is never kept at all, what was sent is."""
    story = Story(llama)
    keeper = llama.opened.keeper  # type: ignore[union-attr]

    def records() -> set[str]:
        llama.flush(30)
        return set(keeper._index.entries)

    before = records()
    story.type(LONG)
    assert records() == before
    story.type("something quite different " * 8)
    done = story.send("something quite different " * 8)
    assert done.numbers.typed_tokens > 100
    after = records() - before
    kept = {ids for name in after if (ids := keeper._index.entries[name].ids)}
    secret = "lazy dog"
    spoken = [llama.opened.loaded.tokenizer.decode(unpack_ids(ids)) for ids in kept]  # type: ignore[union-attr]
    assert any("different" in text for text in spoken)
    assert not any(secret in text for text in spoken)


def kept_texts(runtime: Runtime) -> list[str]:
    """What the records say that are kept in RAM or on SSD."""
    opened = runtime.opened
    assert opened is not None
    assert opened.keeper is not None
    held = [entry.ids for entry in opened.keeper._index.entries.values() if entry.ids]
    return [opened.loaded.tokenizer.decode(unpack_ids(ids)) for ids in held]


def test_a_question_of_another_conversation_keeps_nothing_of_it_either(llama: Runtime) -> None:
    """What lies in the slot unsent when another conversation is asked goes without a name."""
    story = Story(llama)
    story.type(LONG)
    away(llama)
    llama.flush(30)
    assert not any("lazy" in text for text in kept_texts(llama))


def test_opening_another_conversation_keeps_nothing_of_it_either(llama: Runtime) -> None:
    """What is typed and not sent leaves the slot without a name, in RAM or on SSD, when another conversation is brought into it."""
    other, story = Story(llama, "second"), Story(llama)
    story.type(LONG)
    want = Want(conversation="second", ids=b"".join(line.ids for line in other.lines), head=other.head)
    llama.hint(Warm(request=0, model=story.section, wants=(want,), why="open"))
    work(llama)
    assert llama.opened.live.position == other.head.tokens  # type: ignore[union-attr]
    llama.flush(30)
    assert not any("lazy" in text for text in kept_texts(llama))


def test_a_conversation_that_is_not_stored_yet_is_typed_in(llama: Runtime) -> None:
    """The first message of a new conversation is read ahead too, counts as its own, and is exact."""
    section = llama.opened.loaded.section  # type: ignore[union-attr]
    llama.hint(Typing(request=0, conversation="", model=section, lines=(), text=LONG))
    work(llama)
    done, _ = ask(llama, LONG, name="new")
    assert done.numbers.typed_tokens > 100
    assert done.numbers.exact
    again, _ = ask(llama, "x" + LONG, name="newer")
    assert (again.numbers.typed_tokens, again.numbers.exact) == (0, True)


def test_what_was_lost_is_said_though_it_was_computed_early(llama: Runtime) -> None:
    """A conversation whose records are gone is computed while one types; the turn still says what was lost and why."""
    story = Story(llama)
    keeper = llama.opened.keeper  # type: ignore[union-attr]

    def lose_all() -> None:
        away(llama)
        names = tuple((keeper.ground.identity, name) for name in keeper._index.entries)
        llama.forget(Forget(request=0, names=names))

    lose_all()
    expected = story.send("hello there")
    lose_all()
    story.type(LONG)
    done = story.send(LONG)
    assert done.numbers.typed_tokens > 0
    assert not done.numbers.exact
    assert [one.reason for one in done.numbers.fallbacks] == [one.reason for one in expected.numbers.fallbacks] != []


@pytest.mark.parametrize("sent", [LONG, "x " + LONG], ids=["as typed", "its beginning changed"])
def test_what_is_not_exact_is_said_whatever_was_typed_and_changed(tmp_path: Path, sent: str) -> None:
    """Records of another build come back while one types; the turn says so, also if little of what was typed is sent."""
    folder = make("llama", tmp_path / "llama")
    with runtime_of(folder, tmp_path / "home") as runtime:
        told = (ask(runtime, "tell me about the harbour", name="story", n_tokens=n) for n in range(1, 20))
        head, lines = next(
            (done.head, lines) for done, lines in told if done.head.tokens % 16 == 1
        )  # a block ends in the text
        runtime.flush(60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arithmetic, "ARITHMETIC", 0)
        with runtime_of(folder, tmp_path / "home") as runtime:
            story = Story(runtime, "new")
            away(runtime)
            story.name, story.head, story.lines = "story", head, lines
            story.type(LONG)
            done = story.send(sent)
    assert not done.numbers.exact
    assert done.numbers.inexact_because.startswith("fingerprint_changed")


def test_an_opened_conversation_is_in_the_slot(story: Story) -> None:
    """From SSD through RAM into the slot before anything is asked; the turn then restores nothing more, exactly."""
    expected = story.without_typing("go on")
    runtime = story.runtime
    away(runtime)
    assert not runtime.flush(30).problem
    keeper = runtime.opened.keeper  # type: ignore[union-attr]
    keeper.shed()
    want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)
    hits = keeper.counts().preloads.hits
    runtime.hint(Warm(request=0, model=story.section, wants=(want,), why="open"))
    work(runtime)
    assert runtime.snapshot([story.head]).resume_tiers == {story.head.name: "slot"}  # type: ignore[list-item, union-attr]
    done = story.send("go on")
    assert same(done, expected)
    assert (done.numbers.restored.slot, done.numbers.typed_tokens) == (story.head.tokens, 0)  # type: ignore[union-attr]
    assert keeper.counts().preloads.hits > hits
    lines = [event.fields for event in runtime._events.recent if event.kind == "preload"]
    assert lines
    assert (lines[-1]["tokens"], lines[-1]["reason"]) == (story.head.tokens, "preload")  # type: ignore[union-attr]


def test_what_is_not_whole_is_not_opened(llama: Runtime) -> None:
    """A conversation that has lost its newest record is left to its next turn, which says what is lost; the slot stays as it is."""
    story = Story(llama)
    away(llama)
    live = llama.opened.live  # type: ignore[union-attr]
    llama.opened.keeper.forget((), [(story.head.identity, story.head.name)], 10.0)  # type: ignore[union-attr]
    before = list(live.ids)
    want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)
    llama.hint(Warm(request=0, model=story.section, wants=(want,), why="open"))
    work(llama)
    assert live.ids == before
    assert not story.send("go on").numbers.exact


def test_a_conversation_that_is_half_in_the_slot_is_not_taken_for_whole(story: Story) -> None:
    """A hint that is broken off between two records leaves no state behind that a turn would go on from."""
    expected = story.without_typing("go on")
    runtime = story.runtime
    for steps in range(1, 4):
        away(runtime)
        want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)
        runtime.hint(Warm(request=0, model=story.section, wants=(want,), why="open"))
        work(runtime, steps)
        assert same(story.send("go on"), expected)


def test_a_newer_hint_ends_what_is_no_more_urgent(llama: Runtime) -> None:
    """Opening ends resting and opening; resting does not end opening, and what is typed elsewhere is forgotten with an opening."""
    story = Story(llama)
    away(llama)
    want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)

    def warm(why: str) -> Warm:
        return Warm(request=0, model=story.section, wants=(want,), why=why)  # type: ignore[arg-type]

    llama.hint(warm("open"))
    work(llama, 1)
    under_way = llama.ahead._work
    assert under_way is not None
    llama.hint(warm("rest"))
    llama.idle()
    assert llama.ahead._work is under_way
    llama.hint(warm("open"))
    llama.idle()
    assert llama.ahead._work is not under_way
    assert set(llama.ahead._waiting) == {"rest"}
    work(llama)


def test_what_was_hinted_at_before_a_turn_counts_no_more(llama: Runtime) -> None:
    """Hints that nobody had time for are gone when something is asked: what was typed elsewhere is not read after the answer."""
    story = Story(llama)
    want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)
    away(llama)
    typing = Typing(request=0, conversation="elsewhere", model=story.section, lines=(), text=LONG)
    llama.hint(Warm(request=0, model=story.section, wants=(want,), why="likely"))
    llama.hint(typing)
    work(llama, 1)
    assert llama.ahead.is_busy
    llama.hint(typing)
    before = llama.tally.typed_tokens
    away(llama)
    assert not llama.ahead.is_busy
    assert work(llama) == 0
    assert llama.tally.typed_tokens == before


def test_opening_forgets_what_is_typed_elsewhere(llama: Runtime) -> None:
    """Who opens a conversation has left the one that was typed in: its hint, not begun yet, is dropped."""
    story = Story(llama)
    away(llama)
    before = llama.tally.typed_tokens
    want = Want(conversation=story.name, ids=b"".join(line.ids for line in story.lines), head=story.head)
    llama.hint(Typing(request=0, conversation="elsewhere", model=story.section, lines=(), text=LONG))
    llama.hint(Warm(request=0, model=story.section, wants=(want,), why="open"))
    work(llama)
    assert llama.tally.typed_tokens == before
    assert llama.opened.live.position == story.head.tokens  # type: ignore[union-attr]


def test_another_model_is_not_loaded_for_a_hint(llama: Runtime) -> None:
    """Hints are about the model that is open; for any other they are nothing."""
    opened = llama.opened
    llama.hint(Typing(request=0, conversation="c", model=ModelSection(name="another"), lines=(), text=LONG))
    work(llama)
    assert llama.opened is opened
    assert opened is not None
    assert opened.live.position == 0


@pytest.mark.parametrize(
    ("setting", "battery", "wanted"),
    [("always", True, True), ("plugged", True, False), ("plugged", False, True), ("never", False, False)],
)
def test_work_ahead_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, setting: str, battery: bool, wanted: bool) -> None:
    """The setting decides; "plugged" asks the battery each time."""
    monkeypatch.setattr("localkv.ahead.on_battery", lambda: battery)
    assert wanted_now(setting) is wanted  # type: ignore[arg-type]


def test_on_battery_hints_are_refused_and_said_once(llama: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unplugging stops work ahead with one line in the log, plugging in resumes it with another."""
    plugged = [False]
    ahead = llama.ahead
    monkeypatch.setattr(ahead, "_may", lambda: plugged[-1])
    section = llama.opened.loaded.section  # type: ignore[union-attr]
    for plugged[-1] in (False, False, True):
        assert llama.opened.live.position == 0  # type: ignore[union-attr]
        llama.hint(Typing(request=0, conversation="", model=section, lines=(), text=LONG))
        work(llama)
    assert llama.opened.live.position > 100  # type: ignore[union-attr]
    assert [event.kind for event in llama._events.recent if event.kind.startswith("ahead")] == ["ahead.off", "ahead.on"]
    assert isinstance(ahead, Ahead)


def test_unplugged_in_the_middle(llama: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long paste is not read to its end on battery: work stops after the step that is under way, and what was read stays of use."""
    plugged = [True]
    monkeypatch.setattr(llama.ahead, "_may", lambda: plugged[-1])
    section = llama.opened.loaded.section  # type: ignore[union-attr]
    typing = Typing(request=0, conversation="", model=section, lines=(), text=LONG)
    llama.hint(typing)
    work(llama, 3)
    read = llama.opened.live.position  # type: ignore[union-attr]
    plugged.append(False)
    work(llama)
    assert 0 < llama.opened.live.position == read < 100  # type: ignore[union-attr]
    assert not llama.ahead.is_busy
    assert [event.kind for event in llama._events.recent if event.kind.startswith("ahead")] == ["ahead.off"]
    done, _ = ask(llama, LONG, name="new")
    assert done.numbers.typed_tokens == read


def test_a_model_that_reads_tokens_alone_is_typed_ahead_too(folders: dict[str, Path], tmp_path: Path) -> None:
    """Where a chunk forgets the state before it, what is typed in a conversation is read token by token, with the same bits."""
    with runtime_of(folders["jamba"], tmp_path) as runtime:
        assert runtime.opened is not None
        assert runtime.opened.verdict.reading == "tokens"
        story = Story(runtime)
        expected = story.without_typing(LONG)
        away(runtime)
        story.type(LONG)
        done = story.send(LONG)
        assert same(done, expected)
        assert done.numbers.typed_tokens > 100


@given(text=st.text(alphabet="ab c\n", max_size=40), more=st.text(alphabet="abc \n", max_size=20))
def test_what_is_settled_stays_whatever_follows(llama_tokens: object, text: str, more: str) -> None:
    """The ids that are computed ahead begin every prompt that the text can grow into."""
    rendered, n = settled(llama_tokens, (), text, 4096)  # type: ignore[arg-type]
    if rendered is None:
        return
    grown = llama_tokens.render([Line(role="user", text=text + more)]).prompt  # type: ignore[attr-defined]
    assert grown[:n] == rendered.prompt[:n]


@pytest.fixture(scope="module")
def llama_tokens(folders: dict[str, Path]) -> object:
    from transformers import AutoTokenizer

    from localkv.chat.tokens import Tokens

    return Tokens(AutoTokenizer.from_pretrained(folders["llama"]))
