"""Search in the words of all messages: what is found, in which order, and how a hit is shown."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localkv.chat.search import marked
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection


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
    """What people type, quotes and operators and all, is never an error of the query language."""
    assert store.search(query) == []


@given(text=TEXTS)
def test_marks_lie_inside_the_text(text):
    """Signs in the text that look like marks never point outside it."""
    plain, marks = marked(text)
    assert all(0 <= start < end <= len(plain) for start, end in marks)
    assert len(plain.splitlines()) <= 1 or not any(c in plain for c in "\n\r")
