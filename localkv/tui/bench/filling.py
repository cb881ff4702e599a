"""Made-up conversations for the bench, written in few transactions. Same every time: nothing is random but by a fixed seed."""

import itertools
import random
import uuid
from collections.abc import Sequence

from localkv.chat.database import Database
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.config import ModelSection, SamplingSection

ANSWER = """The borrow of `v` lives until the **last use** of `first`, so the push on line 4 conflicts:

```rust
let mut v = vec![1, 2, 3];
let first = &v[0];
v.push(4); // error
println!("{}", first);
```

You can end the borrow early:

1. clone the value, or
2. index again later; see [the book](https://doc.rust-lang.org/book/).

| way | cost |
|---|---|
| clone | a copy |
| index | nothing |

> Lifetimes name how long a borrow lasts. 漢字も、そのまま。
"""
"""A bit of everything that Markdown has."""

N_WORDS = 30_000
_COPIES = """
    INSERT INTO conversations (id, name, title, updated, model, sampling, created, pinned, n_messages, system, private)
    SELECT ?, ?, ?, ?, model, sampling, created, pinned, n_messages, system, private FROM conversations WHERE id = ?
"""
SAID_WORDS = 60


def talk(store: ConversationStore, database: Database, name: str, n_messages: int) -> str:
    """A conversation of questions and answers; its id."""
    known = begin(store, name)
    rows: list[tuple[str, str, str | None, str, str]] = []
    parent: str | None = None
    for index in range(n_messages):
        key, role = uuid.uuid4().hex, ("user", "assistant")[index % 2]
        rows.append((key, known.id, parent, role, ANSWER if index % 2 else f"Why is line {index} not accepted?"))
        parent = key
    add(database, rows)
    store.set_leaf(known.id, parent)
    return known.id


def many(store: ConversationStore, database: Database, n_conversations: int, n_messages: int) -> None:
    """So many conversations with so many messages in all, of words as common and as rare as in a language."""
    words = Words()
    base = begin(store, "first of many")
    with database.writing() as connection:
        connection.executemany(
            _COPIES,
            ((f"{i:032x}", f"talk {i}", words.title(i), base.updated - i * 3600.0, base.id) for i in range(n_conversations)),
        )
    share = n_messages // n_conversations
    for start in range(0, n_messages, 10_000):
        numbers = range(start, min(start + 10_000, n_messages))
        add(database, [(f"m{i}", f"{i // share:032x}", None, "user", words.text()) for i in numbers])


def begin(store: ConversationStore, name: str, max_tokens: int = 1) -> Conversation:
    """An empty conversation that answers greedily."""
    sampling = SamplingSection(temperature=0, max_tokens=max_tokens)
    return store.create(name, model=ModelSection(), sampling=sampling, title=name)


def add(database: Database, rows: Sequence[tuple[str, str, str | None, str, str]]) -> None:
    """Messages: id, conversation, parent, role, text."""
    with database.writing() as connection:
        connection.executemany(
            "INSERT INTO messages (id, conversation, parent, role, state, created, text, ids)"
            " VALUES (?, ?, ?, ?, 'complete', 0, ?, x'')",
            rows,
        )


class Words:
    """A made-up language whose words are as unequally common as those of real ones (Zipf)."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(2, 10))) for _ in range(N_WORDS)]
        self._weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(N_WORDS)))

    def word(self, rank: int) -> str:
        """The word that is so common, from 0."""
        return self._words[rank]

    def text(self) -> str:
        """One message."""
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=SAID_WORDS))

    def title(self, number: int) -> str:
        """One title."""
        return f"{self.word(number % 997)} {self.word(number % 31)} number {number}"
