"""What is said in a rehearsal: questions that follow from their numbers alone, so that an uninterrupted run can be asked the same.

Pure.
"""

import random
import string

TURNS = 5
"""Questions of one conversation."""

FIRST_LETTERS = 360
"""Of the first question: some 200 tokens."""
LETTERS = 150

MAX_TOKENS = 40
"""Length of an answer: the model of the rehearsal never ends one by itself."""


def name_of(conversation: int) -> str:
    """What the conversation is called."""
    return f"talk-{conversation}"


def question(conversation: int, turn: int) -> str:
    """One line of made-up words; no two conversations begin with the same one."""
    rng = random.Random(f"{conversation} {turn}")
    words = [f"{name_of(conversation)}:"]
    while sum(map(len, words)) < (LETTERS if turn else FIRST_LETTERS):
        words.append("".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))))
    return " ".join(words)
