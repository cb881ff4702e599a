"""The one row that stands for what a model thought before it answered: what it says. Pure."""

from localkv.chat.thoughts import Thought, split_thought


def measure(tokens: int, seconds: float, *, exact: bool) -> str:
    """How long thinking took, for its row; `exact`: both were counted, not worked out from the whole answer."""
    about = "" if exact else "about "
    return f"{about}{seconds:.1f} s ({tokens:,} tok)" if tokens else ""


def share(text: str, tokens: int, per_second: float) -> str:
    """`measure` of the thoughts in a finished `text`, by their share of its characters."""
    thought = split_thought(text)
    if thought is None or not thought.inside.strip() or not text:
        return ""
    inside = round(tokens * (len(text) - len(thought.rest)) / len(text))
    return measure(inside, inside / per_second if per_second > 0 else 0.0, exact=False)


def thought_label(thought: Thought, measured: str, *, growing: bool) -> str:
    """What the row says."""
    if not thought.closed and growing:
        return f"Thinking {measured}".rstrip()
    if not thought.inside.strip():
        return "No thoughts"
    return f"Thought for {measured}" if measured else "Thoughts"
