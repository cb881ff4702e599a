"""What computing again costs, from the conversation's own figures."""

import msgspec

from localkv.chat.tree import Message
from localkv.commands.price import Price, price_of
from localkv.figures import Numbers


def message(role, n_ids, numbers=None):
    return Message(
        "m", "c", None, role, "text", b"\0" * 4 * n_ids, "complete", 0.0, None, numbers and msgspec.to_builtins(numbers)
    )


def test_tokens_and_time():
    """All questions and answers, at the rate of the last prefill that was long enough to measure reading."""
    slow = Numbers(prefilled_tokens=1_000, prefill_seconds=10.0)
    fast = Numbers(prefilled_tokens=4_000, prefill_seconds=10.0)
    tiny = Numbers(prefilled_tokens=3, prefill_seconds=10.0)
    path = [message("system", 50), message("user", 6_000), message("assistant", 2_000, slow),
            message("user", 3_000), message("assistant", 1_000, fast), message("assistant", 0, tiny)]  # fmt: skip
    assert price_of(path) == Price(12_000, 30.0)
    assert price_of(path).sentence() == "With the next message 12,000 tokens are computed again: about 30.0 s."


def test_what_is_not_known_is_said():
    """Without a measured rate no time is made up; figures of another version are not trusted; nothing said costs nothing."""
    assert "not known yet" in price_of([message("user", 10)]).sentence()
    odd = msgspec.structs.replace(message("assistant", 5), numbers={"prefilled_tokens": "many"})
    assert price_of([odd]) == Price(5, None)
    assert "costs nothing" in price_of([]).sentence()
