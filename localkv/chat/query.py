"""What a person types to search, understood: words, and filters such as role:user or before:2026-01-31.

Pure; knows no database and no clock. A word with a colon is a filter only if a filter has that name, and a mistake only if the
name is nearly one: all else, such as an address or a line of a log, is looked for as it stands, and so is everything in quotes.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import NamedTuple

from localkv.chat.tree import well_formed
from localkv.chat.visible import one_line
from localkv.errors import SearchRefused
from localkv.messages import Role

FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "role": "role:user",
        "after": "after:2026-01-31",
        "before": "before:2026-01-31",
        "tag": "tag:work",
        "title": "title:rust",
        "model": "model:qwen",
    }
)
"""Each filter with an example."""
FILTERS_HELP = (
    "role:user, role:assistant or role:system; after:2026-01-31 (that day and later), before:2026-01-31 (earlier); "
    "of the conversation: tag:work, title:rust, model:qwen"
)
ROLES: Mapping[str, Role] = MappingProxyType({"user": "user", "assistant": "assistant", "system": "system"})
SPOKEN: tuple[Role, ...] = ("user", "assistant")
"""Where words are looked for if no role is asked for: one system prompt stands above hundreds of conversations."""

_QUOTED = re.compile(r'"([^"]*)"?')
_FILTER = re.compile(r'([^\W\d_]+):(?!//)("[^"]*"?|\S*)')
_PLAIN = re.compile(r"\S+")
_SPACE = re.compile(r"\s*")
_LETTER = re.compile(r"\w")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_NEARLY_A_DAY = re.compile(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})", re.ASCII)
_NEAR = 0.8
"""At 0.7 "stage:" would be a mistake for "tag:"; at 0.8 "titel:" still is one for "title:"."""
_SHOWN = 40
"""Characters of what was typed that a sentence repeats."""


class Part(NamedTuple):
    """Something that the text of a message must have."""

    text: str
    whole: bool
    """As it stands, because it was quoted; else by its beginning."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: a message has all parts and one of the roles, its conversation all else."""

    parts: tuple[Part, ...] = ()
    roles: tuple[Role, ...] = ()
    """Empty: what was said, and no system prompts."""
    after: date | None = None
    """This day and later."""
    before: date | None = None
    """Earlier than this day."""
    tags: frozenset[str] = frozenset()
    titles: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing is looked for."""
        return self == Query()

    @property
    def narrows(self) -> bool:
        """Whether only some conversations are looked into."""
        return bool(self.tags or self.titles or self.models)

    def admits(self, *, title: str, model: str, tags: Iterable[str]) -> bool:
        """Whether a conversation like this is looked into."""
        return (
            self.tags <= set(tags)
            and all(each in folded(title) for each in self.titles)
            and all(each in folded(model) for each in self.models)
        )


def parse(text: str) -> Query:
    """What `text` asks for. Raises SearchRefused for a filter that cannot be used."""
    parts: list[Part] = []
    asked: dict[str, list[str]] = {name: [] for name in FILTERS}
    for found in _split(well_formed(text).replace("\0", " ")):
        if isinstance(found, Part):
            parts += [found] if _LETTER.search(found.text) else []  # what has no letter or digit is in no index
        else:
            asked[found.name].append(_value(found))
    days = {name: [_day(name, value) for value in asked[name]] for name in ("after", "before")}
    return Query(
        parts=tuple(parts),
        roles=tuple(dict.fromkeys(_role(value) for value in asked["role"])),
        after=max(days["after"], default=None),
        before=min(days["before"], default=None),
        tags=frozenset(tag.removeprefix("#").casefold() for tag in asked["tag"]),
        titles=tuple(folded(each) for each in asked["title"]),
        models=tuple(folded(each) for each in asked["model"]),
    )


def folded(text: str) -> str:
    """`text` without accents and capitals, as the index of words has it."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(character for character in apart if not unicodedata.combining(character)).casefold()


class _Asked(NamedTuple):
    """A filter as it was typed."""

    name: str
    value: str


def _split(text: str) -> Iterator[Part | _Asked]:
    at = _end_of(_SPACE, text, 0)
    while at < len(text):
        if quoted := _QUOTED.match(text, at):
            yield Part(quoted[1], whole=True)
            at = quoted.end()
        elif (found := _FILTER.match(text, at)) and _names_a_filter(found[1], found[0]):
            yield _Asked(found[1].casefold(), found[2])
            at = found.end()
        else:
            end = _end_of(_PLAIN, text, at)
            yield Part(text[at:end].strip('"'), whole=False)
            at = end
        at = _end_of(_SPACE, text, at)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _names_a_filter(name: str, typed: str) -> bool:
    """Raises SearchRefused for a name that is nearly one."""
    if name.casefold() in FILTERS:
        return True
    if near := _nearest(name.casefold(), FILTERS, _NEAR):
        words = _short(typed).replace('"', "")
        raise SearchRefused(
            _short(name), f'"{_short(name)}:" is no filter; did you mean {near}:? To find just that text, quote it: "{words}"'
        )
    return False


def _value(asked: _Asked) -> str:
    value = asked.value.strip('"').strip()
    if not value:
        raise SearchRefused(asked.name, f"write what to look for right after {asked.name}:, such as {FILTERS[asked.name]}")
    return value


def _role(value: str) -> Role:
    if role := ROLES.get(value.casefold()):
        return role
    near = _nearest(value.casefold(), ROLES, 0.6)
    raise SearchRefused(
        "role",
        f"role:{_short(value)} is no role; " + (f"did you mean role:{near}?" if near else f"write {_any_of(tuple(ROLES))}"),
    )


def _day(name: str, value: str) -> date:
    if (found := _DAY.fullmatch(value)) and (day := _date(found.groups())):
        return day
    nearly = _NEARLY_A_DAY.fullmatch(value)
    near = None if nearly is None else _date(nearly.groups())
    meant = f"did you mean {name}:{near.isoformat()}?" if near else f"write year, month and day, such as {FILTERS[name]}"
    raise SearchRefused(name, f"{name}:{_short(value)} is no day; {meant}")


def _date(numbers: Sequence[str]) -> date | None:
    try:
        return date(*(int(number) for number in numbers))
    except ValueError:
        return None


def _nearest(name: str, names: Iterable[str], cutoff: float) -> str:
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def _short(typed: str) -> str:
    shown = one_line(typed)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


def _any_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
