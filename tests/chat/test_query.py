"""What a person types to search: what is a filter, what is a mistake, and what is looked for as it stands."""

from datetime import date

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from localkv.chat.query import FILTERS, FILTERS_HELP, Part, Query, folded, parse
from localkv.chat.visible import one_line
from localkv.errors import SearchRefused

TEXTS = st.text(st.characters(codec="utf-8"), max_size=80)
WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=12)
NAMES = st.sampled_from(sorted(FILTERS))


def plain(*words):
    return tuple(Part(word, whole=False) for word in words)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", Query()),
        (" ++ ", Query()),
        ("a b", Query(parts=plain("a", "b"))),
        ('"a b" c', Query(parts=(Part("a b", whole=True), *plain("c")))),
        ('"a b', Query(parts=(Part("a b", whole=True),))),
        ("role:user", Query(roles=("user",))),
        ("ROLE:System needle", Query(parts=plain("needle"), roles=("system",))),
        ("role:user role:assistant role:user", Query(roles=("user", "assistant"))),
        ("after:2026-01-31 before:2026-02-28", Query(after=date(2026, 1, 31), before=date(2026, 2, 28))),
        ("before:2026-02-28 before:2026-02-01", Query(before=date(2026, 2, 1))),
        ("after:2026-02-28 after:2026-02-01", Query(after=date(2026, 2, 28))),
        ("tag:Work tag:#rust", Query(tags=frozenset({"work", "rust"}))),
        ('title:"Über Rust" x', Query(parts=plain("x"), titles=("uber rust",))),
        ('title:"Über Rust', Query(titles=("uber rust",))),
        ("model:Qwen/Qwen3-4B", Query(models=("qwen/qwen3-4b",))),
        ("http://example.org/a:b", Query(parts=plain("http://example.org/a:b"))),
        ("model://x", Query(parts=plain("model://x"))),
        ("foo:bar 12:30 a:b:c C:\\x std::sort :user", Query(parts=plain("foo:bar", "12:30", "a:b:c", "C:\\x", "std::sort", ":user"))),
        ('"role:user"', Query(parts=(Part("role:user", whole=True),))),
        ("-role:user petrole:user role", Query(parts=plain("-role:user", "petrole:user", "role"))),
        ("stage:prod node:1 profile:x", Query(parts=plain("stage:prod", "node:1", "profile:x"))),
    ],
)  # fmt: skip
def test_what_is_understood(typed, expected):
    """Filters narrow, words and quotes are looked for, and a colon alone makes no filter."""
    assert parse(typed) == expected


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("rol:user", '"rol:" is no filter; did you mean role:? To find just that text, quote it: "rol:user"'),
        ("titel:rust", "did you mean title:"),
        ("tags:work", "did you mean tag:"),
        ("Befor:2026-01-01", "did you mean before:"),
        ("role:usr", "role:usr is no role; did you mean role:user?"),
        ("role:xyzzy", "write user, assistant or system"),
        ("after:yesterday", "after:yesterday is no day; write year, month and day, such as after:2026-01-31"),
        ("before:2026-1-5", "did you mean before:2026-01-05?"),
        ("before:2026/01/05", "did you mean before:2026-01-05?"),
        ("before:20260105", "did you mean before:2026-01-05?"),
        ("before:2026-02-30", "is no day; write"),
        ("before:0000-01-01", "is no day; write"),
        ("after:٢٠٢٦-٠١-٠٥", "is no day; write"),
        ("role: user", "right after role:, such as role:user"),
        ('tag:""', "right after tag:, such as tag:work"),
        ("role:\x1b[2J", "role:^[[2J is no role"),
        ("role:" + "x" * 300, "role:" + "x" * 39 + "… is no role"),
    ],
)
def test_what_is_refused(typed, sentence):
    """A filter that cannot be used is a sentence with what was meant; nothing of it steers a terminal."""
    with pytest.raises(SearchRefused) as refused:
        parse(typed)
    assert sentence in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_every_example_can_be_typed():
    """What help and sentences offer is understood."""
    for example_of in FILTERS.values():
        assert not parse(example_of).empty
        assert example_of in FILTERS_HELP


@given(TEXTS)
@example("role:user")
def test_quotes_take_the_meaning_from_filters(text):
    """Whatever stands in quotes is looked for and is never a filter or a mistake."""
    assume('"' not in text)
    found = parse(f'"{text}"')
    assert found == Query(parts=found.parts)
    assert [part.text for part in found.parts] in ([text.replace("\0", " ")], [])


@given(TEXTS)
def test_text_without_colons_has_no_filters(text):
    """Only a colon can make a filter or a mistake: all else is words."""
    found = parse(text.replace(":", " "))
    assert found == Query(parts=found.parts)


@given(st.lists(st.tuples(NAMES, WORDS) | WORDS, max_size=6))
def test_filters_stand_anywhere(pieces):
    """Words and filters do not depend on their order among each other, and nothing that was typed is lost."""
    typed = [piece if isinstance(piece, str) else f"{piece[0]}:{piece[1]}" for piece in pieces]
    filters = [word for word in typed if ":" in word]
    words = [word for word in typed if ":" not in word]
    try:
        together = parse(" ".join(typed))
    except SearchRefused:
        with pytest.raises(SearchRefused):
            parse(" ".join(filters))
        return
    assert together == parse(" ".join(filters + words))
    assert together.parts == parse(" ".join(words)).parts
    assert len(together.tags | set(together.titles) | set(together.models)) <= len(filters)


@given(NAMES, TEXTS)
def test_a_mistake_is_a_sentence_and_nothing_else(name, value):
    """Any value of any filter is understood or refused by name; parsing never fails otherwise."""
    try:
        found = parse(f"{name}:{value}")
    except SearchRefused as error:
        assert error.name
        assert one_line(str(error)) == str(error)
    else:
        assert value.startswith("//") or not found.empty


@given(st.dates(), st.dates())
def test_days_are_read_as_they_are_written(first, second):
    """Every day of the calendar, and of several the one that narrows most."""
    found = parse(f"after:{first} before:{first} after:{second} before:{second}")
    assert (found.after, found.before) == (max(first, second), min(first, second))


@given(TEXTS, TEXTS)
def test_folding_ignores_accents_and_capitals(text, other):
    """A title is found however it is written, and by any piece of it."""
    assert folded(folded(text)) == folded(text)
    assert Query(titles=(folded(text),)).admits(title=other + text, model="", tags=())


def test_who_is_admitted():
    """A conversation has all tags, and its title and model have all that was written."""
    query = parse("tag:work title:rust model:qwen")
    assert query.narrows
    assert query.admits(title="About Rust", model="Qwen/Qwen3", tags=("play", "work"))
    assert not query.admits(title="About Rust", model="Qwen/Qwen3", tags=("play",))
    assert not query.admits(title="About", model="Qwen/Qwen3", tags=("work",))
    assert not query.admits(title="About Rust", model="llama", tags=("work",))
    assert not parse("role:user after:2026-01-01 word").narrows
