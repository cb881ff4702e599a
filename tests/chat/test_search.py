"""Search in the words of all messages: what is found, in which order, and how a hit is shown."""

import threading
from contextlib import closing
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localkv.chat.migrations import MIGRATIONS
from localkv.chat.rows import insert_message
from localkv.chat.search import marked
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Message
from localkv.config import ModelSection, SamplingSection
from localkv.errors import SearchRefused
from tests.chat.clock import Clock


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    opened = ConversationStore.open(folder / "conversations.db", folder / "backups")
    yield opened
    opened.close()


@pytest.fixture
def talk(store):
    """A conversation that is gone after the test, system prompt and all."""
    key = store.create("talk", model=ModelSection(), sampling=SamplingSection(), system="be terse about walruses").id
    yield key
    store.erase(key)


def say(store, talk, *texts):
    for text in texts:
        store.ask(talk, None, text)


def found(store, query, limit=50):
    return [hit.snippet for hit in store.search(query, limit)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("paging", ["Paging tables"]),
        ("TABLE", ["a table", "Paging tables"]),
        ("table pag", ["Paging tables"]),
        ('"a table"', ["a table"]),
        ('"tables a"', []),
        ("uber", ["Über den Wolken"]),
        ("ubér wolk", ["Über den Wolken"]),
        ('"den wol"', []),
        ("c++ rocks", ["C++ rocks"]),
        ('he"llo', []),
        ("AND OR NOT NEAR(", []),
        ("text:paging", []),
        ("*", []),
        ("", []),
        ('"', []),
        ("walruses", []),
        ("a\0table", ["a table"]),
        ("\ud800", []),
    ],
)
def test_what_is_found(store, talk, query, expected):
    """Words by their beginning, all of them, in any order; quotes keep the order; signs of the query language are words."""
    say(store, talk, "Paging tables", "Über den Wolken", "C++ rocks", "a table")
    assert sorted(found(store, query)) == sorted(expected)


def test_scripts_without_spaces_are_searched_letter_by_letter(store, talk):
    """Two characters in the middle of a Chinese, Japanese or Thai sentence are found, with what stands around them."""
    say(store, talk, "我们讨论缓存的问题", "キャッシュについて話す", "ภาษาไทยง่าย", "無關")
    (hit,) = store.search("缓存")
    assert hit.snippet == "我们讨论缓存的问题"
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["缓存"]
    assert found(store, "について") == ["キャッシュについて話す"]
    assert found(store, "ไทย") == ["ภาษาไทยง่าย"]
    assert found(store, "缓存 问题") == ["我们讨论缓存的问题"]
    assert found(store, "缓存 無") == []


def test_the_newest_come_first_and_no_more_than_asked(store, talk):
    """A common word does not fetch everything."""
    say(store, talk, *(f"word number {n}" for n in range(20)))
    assert found(store, "word", 3) == ["word number 19", "word number 18", "word number 17"]


def test_the_trash_is_not_searched_and_the_archive_is(store, talk):
    """What was thrown away stays out of the way; what was put away is found."""
    say(store, talk, "needle")
    store.set_archived(talk, True)
    assert found(store, "needle") == ["needle"]
    store.trash(talk)
    assert found(store, "needle") == []
    store.untrash(talk)
    assert found(store, "needle") == ["needle"]


@pytest.mark.parametrize("query", ["needle", "针"])
def test_what_was_taken_away_is_not_found(store, talk, query):
    """A branch that was taken away stays out of search, with all below it, until it is brought back."""
    question = store.ask(talk, None, "one needle 针")
    below = store.ask(talk, question.id, "needle 针 below it")
    store.ask(talk, None, "another needle 针")
    store.take_away(question.id)
    assert found(store, query) == ["another needle 针"]
    store.bring_back(question.id)
    assert {hit.message for hit in store.search(query)} >= {question.id, below.id}


def test_a_hit_says_where_it_is(store, talk):
    """Enough to open the conversation at the message, with the words marked."""
    say(store, talk, "one needle\nin a\x02 haystack of needles")
    (hit,) = store.search("needle")
    assert (hit.conversation, hit.name, hit.role) == (talk, "talk", "user")
    assert hit.message == store.path(talk)[-1].id
    assert "\n" not in hit.snippet
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["needle", "needles"]


# ---- filters ----


@pytest.fixture
def dated(tmp_path):
    """A store whose clock stands where it is put, and says so."""
    clock = Clock()
    opened = ConversationStore.open(tmp_path / "conversations.db", tmp_path / "backups", clock=clock)
    yield opened, clock
    opened.close()


def begin(store, name, system="", title="", model="m"):
    return store.create(name, model=ModelSection(name=model), sampling=SamplingSection(), system=system, title=title).id


def answer(store, talk, text):
    """An answer below a question that the test is not about."""
    reply = store.begin_answer(talk, store.ask(talk, None, "whatever").id)
    store.finish_answer(reply.id, text=text, ids=b"", state="complete", head=None, numbers=None)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("needle role:user", ["needle asked 针"]),
        ("role:assistant needle", ["needle answered 针"]),
        ("needle role:system", ["needle above 针"]),
        ("needle role:system role:user", ["needle asked 针", "needle above 针"]),
        ("针 role:system role:user", ["needle asked 针", "needle above 针"]),
        ("needle", ["needle answered 针", "needle asked 针"]),
        ("针", ["needle answered 针", "needle asked 针"]),
        ("role:system", ["needle above 针"]),
        ("role:user asked", ["needle asked 针"]),
        ("role:user role:assistant nowhere", []),
        ("needle tag:Work role:user", ["needle asked 针"]),
        ("needle tag:work tag:play", []),
        ("needle title:HAY role:user", ["needle asked 针"]),
        ("针 title:hay role:user", ["needle asked 针"]),
        ("needle title:other", []),
        ("needle model:qwen role:user", ["needle asked 针"]),
        ("needle model:llama", []),
        ("tag:work role:system", ["needle above 针"]),
    ],
)
def test_filters(dated, query, expected):
    """Who spoke, and what the conversation is called, tagged and answered by; with words of any script, and without."""
    store, _ = dated
    talk = begin(store, "talk", system="needle above 针", title="Háystack", model="Qwen/Qwen3")
    store.set_tags(talk, ["work"])
    store.ask(talk, None, "needle asked 针")
    answer(store, talk, "needle answered 针")
    begin(store, "other", title="other", model="llama")
    assert found(store, query) == expected


@pytest.mark.parametrize("words", ["needle", "针", ""])
def test_days(dated, words):
    """`after:` begins with the day, `before:` ends with the day before it, where the person is; together they are a span."""
    store, clock = dated
    talk = begin(store, "talk")
    for day, hour in ((1, 23), (2, 0), (2, 23), (3, 0)):
        clock.now = datetime(2026, 5, day, hour, 30).timestamp()
        store.ask(talk, None, f"needle 针 {day} {hour}")

    def times(filters):
        return [hit.snippet.removeprefix("needle 针 ") for hit in store.search(f"{words} {filters}")]

    assert times("after:2026-05-02") == ["3 0", "2 23", "2 0"]
    assert times("before:2026-05-02") == ["1 23"]
    assert times("after:2026-05-02 before:2026-05-03") == ["2 23", "2 0"]
    assert times("after:0001-01-01 before:9999-12-31") == ["3 0", "2 23", "2 0", "1 23"]
    assert times("after:2026-05-03 before:2026-05-02") == []


def test_a_hit_of_filters_alone_shows_how_the_message_begins(dated):
    """Without words nothing is marked, and a long message is cut."""
    store, _ = dated
    store.ask(begin(store, "talk"), None, "first line\n" + "x" * 500)
    (hit,) = store.search("role:user")
    assert hit.snippet.startswith("first line xxx")
    assert hit.snippet.endswith("x…")
    assert len(hit.snippet) < 120
    assert hit.marks == ()


def test_a_mistake_reaches_who_asked(store, talk):
    """A filter that cannot be used finds nothing and says why, through the store as well."""
    with pytest.raises(SearchRefused, match="did you mean role:user"):
        store.search("needle role:usr")


def test_what_looks_like_a_filter_is_found_when_it_is_text(store, talk):
    """Addresses and words with a colon are looked for as they were written."""
    say(store, talk, "see http://example.org/x", "foo:bar is set", "the role:user of it", "bar foo")
    assert found(store, "http://example") == ["see http://example.org/x"]
    assert found(store, "foo:bar") == ["foo:bar is set"]
    assert found(store, '"role:user"') == ["the role:user of it"]


def test_nobody_waits_for_a_search(store, talk, monkeypatch):
    """One that reads every message takes a while, and the list and the composer need the store meanwhile."""
    from localkv.chat import store as module

    done = []

    def find(*arguments):
        other = threading.Thread(target=lambda: (store.set_draft(talk, "typed meanwhile"), done.append(store.list())))
        other.start()
        other.join(20)
        return real(*arguments)

    real = module.find
    monkeypatch.setattr(module, "find", find)
    say(store, talk, "needle")
    assert found(store, "needle") == ["needle"]
    assert len(done) == 1


# ---- copies ----


@pytest.mark.parametrize("query", ["needle", "针", "role:user role:assistant"])
def test_a_fork_does_not_find_everything_twice(dated, query):
    """What both conversations share is one hit in the one that was used last, and the hit says where else it is."""
    store, _ = dated
    one = begin(store, "one")
    shared = store.ask(one, None, "needle 针 shared")
    store.fork(shared.id, "two")
    store.fork(shared.id, "three")
    store.ask(one, shared.id, "needle 针 later")
    hits = store.search(query)
    assert [(hit.name, hit.snippet) for hit in hits] == [("one", "needle 针 later"), ("one", "needle 针 shared")]
    assert [sorted(hit.also_in) for hit in hits] == [[], ["three", "two"]]
    two = store.by_name("two").id
    store.ask(two, store.path(two)[-1].id, "something else")
    hit = next(hit for hit in store.search(query) if "shared" in hit.snippet)
    assert (hit.name, sorted(hit.also_in)) == ("two", ["one", "three"])
    assert store.message(hit.message).conversation == two


def test_a_fork_does_not_bring_old_words_to_the_top(dated):
    """Hits stand where their message was said first, whatever was copied since; no more than asked for come."""
    store, _ = dated
    one, other = begin(store, "one"), begin(store, "other")
    first = store.ask(one, None, "needle first")
    last = store.ask(one, first.id, "needle second")
    store.ask(other, None, "needle third")
    store.fork(last.id, "fork")
    assert found(store, "needle") == ["needle third", "needle second", "needle first"]
    assert found(store, "needle", 2) == ["needle third", "needle second"]


def test_another_system_prompt_does_not_find_everything_twice(dated):
    """Its copies are in the same conversation: one hit, on the branch that was written last, and nowhere else."""
    store, _ = dated
    talk = begin(store, "talk", system="old prompt")
    store.ask(talk, None, "needle")
    store.set_system(talk, "new prompt")
    (hit,) = store.search("needle")
    assert (hit.message, hit.also_in) == (store.path(talk)[-1].id, ())
    assert found(store, "role:system prompt") == ["new prompt", "old prompt"]


@pytest.mark.parametrize("clock", [lambda: 1000.0, Clock()], ids=["all at once", "one after the other"])
def test_what_was_said_twice_is_found_twice(tmp_path, clock):
    """The same words are no copy, whoever said them and in which conversation, though an import gave all the same time."""
    with closing(ConversationStore.open(tmp_path / "conversations.db", tmp_path / "backups", clock=clock)) as store:
        talk = begin(store, "talk")
        say(store, talk, "needle", "needle")
        answer(store, talk, "needle")
        say(store, begin(store, "other"), "needle")
        assert found(store, "needle") == ["needle"] * 4
        store.fork(store.path(talk)[-1].id, "fork")
        assert [len(hit.also_in) for hit in store.search("needle")] == [0, 1, 0, 0]


def test_a_copy_of_a_copy_is_one_more_of_the_same(dated):
    """Forks of forks and other system prompts in them: one hit, also when the first of all is gone for good."""
    store, _ = dated
    first = begin(store, "first", system="a prompt")
    store.ask(first, None, "needle")
    names = ["first", "second", "third"]
    for before, after in pairwise(names):
        store.fork(store.path(store.by_name(before).id)[-1].id, after)
        store.set_system(store.by_name(after).id, f"the prompt of the {after}")
    assert [sorted([hit.name, *hit.also_in]) for hit in store.search("needle")] == [sorted(names)]
    store.erase(first)
    assert [sorted([hit.name, *hit.also_in]) for hit in store.search("needle")] == [["second", "third"]]


def test_a_copy_that_went_on_is_another_message(dated):
    """An answer that was continued in a fork says something else than the one it was copied from."""
    store, _ = dated
    talk = begin(store, "talk")
    reply = store.begin_answer(talk, store.ask(talk, None, "question").id)
    store.finish_answer(reply.id, text="needle", ids=b"", state="stopped", head=None, numbers=None)
    fork = store.fork(reply.id, "fork")
    copy = store.reopen_answer(fork.leaf)
    store.finish_answer(copy.id, text="needle and thread", ids=b"", state="complete", head=None, numbers=None)
    assert [(hit.snippet, hit.also_in) for hit in store.search("needle")] == [("needle and thread", ()), ("needle", ())]


def test_forks_of_an_older_schema_are_found_once(tmp_path):
    """Copies that were made before they were noted are known by time, speaker and text; in one conversation nothing is."""
    titles = [migration.title for migration in MIGRATIONS]
    path, backups = tmp_path / "conversations.db", tmp_path / "backups"
    old = MIGRATIONS[: titles.index("words of system prompts, copies, erasures that are not complete")]
    with closing(ConversationStore.open(path, backups, migrations=old)) as store:
        one, two = begin(store, "one"), begin(store, "two")
        with store._database.writing() as connection:
            for n, (talk, text, when) in enumerate(
                (
                    (one, "needle a", 1.0),
                    (one, "needle a", 1.0),
                    (two, "needle a", 1.0),
                    (two, "needle a", 2.0),
                    (two, "needle b", 1.0),
                )
            ):
                insert_message(connection, Message(f"m{n}", talk, None, "user", text, b"", "complete", when))
    with closing(ConversationStore.open(path, backups)) as store:
        hits = {hit.message: hit.also_in for hit in store.search("needle")}
    assert sorted(map(len, hits.values())) == [0, 0, 0, 1]


def test_copies_that_are_out_of_sight_do_not_count(dated):
    """A copy in the trash, on a branch that was taken away or in a conversation that a filter leaves out is none."""
    store, _ = dated
    one = begin(store, "one", title="first")
    shared = store.ask(one, None, "needle")
    for name in ("trashed", "taken", "titled"):
        store.fork(shared.id, name, name)
    store.trash(store.by_name("trashed").id)
    taken = store.by_name("taken").id
    store.take_away(store.path(taken)[0].id)
    hits = {query: [(hit.name, hit.also_in) for hit in store.search(query)] for query in ("needle", "needle title:first")}
    assert hits == {"needle": [("titled", ("one",))], "needle title:first": [("one", ())]}
    store.trash(one)
    assert [(hit.name, hit.also_in) for hit in store.search("needle")] == [("titled", ())]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=TEXTS)
def test_every_word_of_a_message_finds_it(store, text):
    """Whatever is written and in whatever script, what a person copies out of a message brings back that message."""
    key = store.create("any", model=ModelSection(), sampling=SamplingSection()).id
    try:
        message = store.ask(key, None, text).id
        for word in text.replace("\0", " ").replace('"', " ").split():
            hits = store.search(word)
            if any(character.isascii() and character.isalnum() for character in word):
                assert [hit.message for hit in hits] == [message], word
    finally:
        store.erase(key)


@given(query=TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_query_is_an_error(store, query):
    """What people type, quotes and operators and all, is never an error of the query language; a mistake is a sentence."""
    try:
        assert store.search(query) == []
    except SearchRefused:
        assert ":" in query


@given(text=TEXTS)
def test_marks_lie_inside_the_text(text):
    """Signs in the text that look like marks never point outside it."""
    plain, marks = marked(text)
    assert all(0 <= start < end <= len(plain) for start, end in marks)
    assert len(plain.splitlines()) <= 1 or not any(c in plain for c in "\n\r")
