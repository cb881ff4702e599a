"""How foreign trees become ours: order, speakers, circles, and ids that are the same every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.imports.incoming import Incoming, Node, arrive, in_order
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ImportRefused

NOW = 1_750_000_000.0


def taken(*nodes, **facts):
    return arrive(Incoming("test", "c", "", nodes, **facts), ModelSection(), SamplingSection(), NOW)


def texts(arrival):
    return [message.text for message in arrival.messages]


@st.composite
def trees(draw):
    """Nodes with parents among them, in any order, of any role."""
    n = draw(st.integers(1, 12))
    parents = [draw(st.one_of(st.none(), st.integers(0, i - 1))) if i else None for i in range(n)]
    nodes = [
        Node(
            str(i),
            None if parents[i] is None else str(parents[i]),
            draw(st.sampled_from(["user", "assistant", "system", None])),
            draw(st.sampled_from(["", "a", "b c"])),
            draw(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))),
        )
        for i in range(n)
    ]
    return draw(st.permutations(nodes)), draw(st.sampled_from([None, *(str(i) for i in range(n)), "gone"]))


@given(trees())
def test_any_tree_is_taken_in_whole_or_refused(drawn):
    """Parents stand before children, the leaf is a message, times are times, and every text of a speaker is still there."""
    nodes, leaf = drawn
    try:
        arrival = taken(*nodes, leaf=leaf)
    except ImportRefused:
        assert not any(node.role == "assistant" or (node.role == "user" and node.text) for node in nodes)
        return
    seen = set()
    for message in arrival.messages:
        assert message.parent is None or message.parent in seen
        assert message.ids == b""
        assert 0 <= message.created <= 253_402_300_799
        seen.add(message.id)
    assert arrival.conversation.leaf in seen
    whole = "\n".join(texts(arrival))
    assert all(node.text in whole for node in nodes if node.role in ("user", "assistant"))
    by_id = {message.id: message for message in arrival.messages}
    for message in arrival.messages:
        assert message.parent is None or by_id[message.parent].role != message.role, "models take turns"
    assert taken(*nodes, leaf=leaf).messages == arrival.messages or any(node.created is None for node in nodes)


def test_circles_and_doubles_are_refused():
    """Parents that run in a circle, a message that is its own parent, and one id for two messages."""
    for nodes in (
        [Node("a", "b", "user", "x"), Node("b", "a", "assistant", "y")],
        [Node("a", "a", "user", "x")],
        [Node("r", None, "user", "q"), Node("a", "b", "user", "x"), Node("b", "a", "assistant", "y")],
        [Node("a", None, "user", "x"), Node("a", None, "user", "y")],
    ):
        with pytest.raises(ImportRefused):
            in_order(nodes)


@pytest.mark.slow
def test_a_chain_of_100_000_messages_needs_no_stack():
    """Depth costs no recursion."""
    nodes = [Node(str(i), str(i - 1) if i else None, "assistant" if i % 2 else "user", "x") for i in range(100_000)]
    assert len(taken(*reversed(nodes)).messages) == 100_000


def test_two_of_one_speaker_become_one():
    """An answer in two parts, with a tool between them, is one answer; both are read; a branch beside them stays."""
    arrival = taken(
        Node("q", None, "user", "q"),
        Node("a", "q", "assistant", "I look."),
        Node("t", "a", None, "tool output"),
        Node("b", "t", "assistant", "It rains."),
        Node("c", "q", "assistant", "No idea."),
        leaf="b",
    )
    assert texts(arrival) == ["q", "I look.\n\nIt rains.", "No idea."]
    assert arrival.conversation.leaf == arrival.messages[1].id
    assert arrival.conversation.n_messages == 3


def test_zeros_and_halves_of_characters_are_replaced():
    """What a database or a terminal can't hold becomes U+FFFD."""
    assert texts(taken(Node("q", None, "user", "a\0b\ud800c"))) == ["a\ufffdb\ufffdc"]


def test_a_system_prompt_stands_at_the_root():
    """All first messages hang below it; the conversation knows its text."""
    arrival = taken(Node("q", None, "user", "q"), Node("r", None, "user", "r"), system="Be brief.")
    root, *rest = arrival.messages
    assert (root.role, root.text) == ("system", "Be brief.")
    assert {message.parent for message in rest} == {root.id}
    assert arrival.conversation.system == "Be brief."
