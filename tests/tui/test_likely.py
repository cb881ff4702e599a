"""Which conversation a few letters mean."""

import string

from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.likely import letters, ranked
from localkv.tui.listing import Item

DAY = 86_400.0
NOW = 1_750_000_000.0

TITLES = st.text(st.sampled_from(string.ascii_letters + " -_ßİäé漢"), min_size=1, max_size=40)
WORDS = st.text(st.sampled_from(string.ascii_lowercase + "ß漢"), min_size=1, max_size=6)


def item(title, age=0.0, tags=(), pinned=False):
    folded = f"{title} {' '.join('#' + tag for tag in tags)}".casefold()
    return Item(title, title, folded, NOW - age, pinned, tags)


def titles(items, query):
    return [found.item.title for found in ranked(items, query, NOW)]


def test_letters_in_their_order():
    """Not all of a word need be typed; letters out of order mean nothing."""
    items = [item("Rust borrow checker"), item("Tax letter")]
    assert titles(items, "rbc") == ["Rust borrow checker"]
    assert titles(items, "txl") == ["Tax letter"]
    assert titles(items, "lxt") == []


def test_beginnings_and_whole_words_win():
    """Of several that fit, the one whose words begin so; then the one where the letters stand together."""
    assert titles([item("a better day"), item("tax letter")], "let") == ["tax letter"]
    assert titles([item("outlet"), item("tax letter"), item("l x e t")], "let") == ["tax letter", "outlet", "l x e t"]


def test_of_two_that_fit_alike_the_newer_comes_first():
    """People come back to what they did lately; age never beats a clearly better match."""
    old, new = item("rust notes", 90 * DAY), item("rust plans", 60.0)
    assert titles([old, new], "rust") == ["rust plans", "rust notes"]
    assert titles([old, item("trust fund", 60.0)], "rust") == ["rust notes", "trust fund"]


def test_tags_are_found():
    """A tag finds its conversations, with or without its sign, after those that have the word in their title."""
    items = [item("alpha", tags=("work",)), item("work plan", 9 * DAY), item("omega")]
    assert titles(items, "work") == ["work plan", "alpha"]
    assert titles(items, "#wor") == ["alpha"]


def test_nothing_typed_shows_the_newest():
    """The switcher opens with where one most likely goes next; a pin has no advantage in it."""
    items = [item("old", 9 * DAY, pinned=True), item("new", 5.0), item("newer", 1.0)]
    assert titles(items, "") == ["newer", "new", "old"]


@given(title=TITLES, data=st.data())
def test_every_part_of_a_title_finds_it(title, data):
    """Any letters of a title in their order find it, and what is marked are those letters."""
    folded = title.casefold()
    picked = sorted(data.draw(st.sets(st.integers(0, len(folded) - 1), min_size=1, max_size=6)))
    word = "".join(folded[at] for at in picked).replace(" ", "")
    found = ranked([item(title)], word, NOW)
    assert [match.item.title for match in found] == [title]
    if word and len(folded) == len(title):
        assert "".join(folded[at] for at in found[0].at) == word


@given(text=TITLES, word=WORDS)
def test_letters_are_where_they_are_said_to_be(text, word):
    """Places are in order, and the letters there spell the word; None only if they cannot."""
    at = letters(text.casefold(), word)
    if at is None:
        rest = iter(text.casefold())
        assert not all(letter in rest for letter in word)
    else:
        assert list(at) == sorted(set(at))
        assert "".join(text.casefold()[place] for place in at) == word


@given(names=st.lists(TITLES, max_size=12), word=WORDS, ages=st.lists(st.floats(-DAY, 4000 * DAY), min_size=12, max_size=12))
def test_ranking_is_an_order(names, word, ages):
    """Scores never rise down the list, each conversation is in it at most once, and the limit holds."""
    items = [item(f"{name}{index}", ages[index]) for index, name in enumerate(names)]
    found = ranked(items, word, NOW, limit=5)
    scores = [match.score for match in found]
    assert scores == sorted(scores, reverse=True)
    assert len({match.item.id for match in found}) == len(found) <= 5
