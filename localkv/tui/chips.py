"""Long pastes and files as chips: a few words in brackets that stand for a text too long to be written around.

Pure; knows no widgets. What is written is a text in which labels occur, and a table of what each label stands for. Nothing a
chip stands for is ever lost: `whole` has all of it, `pack` and `unpack` keep it in a draft, and `widen` sees to it that no
edit takes a part of a label away. Invariant: `whole(*fold(message)) == message`.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from localkv.chat.attachments import Attachment, split_files, with_files

LONG_CHARACTERS, LONG_LINES = 2_000, 20
"""A paste longer than this becomes a chip."""

FOLD_CHARACTERS = 1 << 16
"""A stored message longer than this is a chip when it comes back to be edited: a larger text makes each key slow."""

_PACKED = "\x02"
"""What a draft with chips begins with; such a character is never typed first."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What a label stands for. `file`: the name of a file; empty for a paste."""

    text: str
    file: str = ""


Chips = Mapping[str, Chip]
Span = tuple[int, int]


def is_long(text: str) -> bool:
    """Whether a paste is shown as a chip."""
    return len(text) > LONG_CHARACTERS or text.count("\n") >= LONG_LINES


def paste_label(text: str, taken: Collection[str]) -> str:
    """A label for a paste that is none of `taken`."""
    lines = text.count("\n") + 1
    return _free(f"pasted {lines:,} lines" if lines > 3 else f"pasted {len(text):,} characters", taken)


def file_label(file: Attachment, taken: Collection[str]) -> str:
    """A label for a file that is none of `taken`."""
    return _free(f"{file.name} {file.size}", taken)


def labels_in(text: str, chips: Chips) -> list[tuple[Span, str]]:
    """Where labels stand in `text`, in order."""
    if not chips:
        return []
    pattern = re.compile("|".join(re.escape(label) for label in sorted(chips, key=len, reverse=True)))
    return [(match.span(), match[0]) for match in pattern.finditer(text)]


def whole(text: str, chips: Chips) -> str:
    """The message that is sent: pastes in their places, files before the words, each mentioned where its label stood.

    Labels of files that begin the text are not mentioned in the words.
    """
    files: dict[str, Attachment] = {}
    words: list[str] = []
    at = 0
    leading = True
    for (start, end), label in labels_in(text, chips):
        chip = chips[label]
        between = text[at:start]
        leading = leading and bool(chip.file) and not between
        words.append(between)
        at = end
        if not chip.file:
            words.append(chip.text)
            continue
        files.setdefault(label, Attachment(chip.file, chip.text))
        if not leading:
            words.append(chip.file)
        elif text[end : end + 1] == " ":
            at += 1
    return with_files(files.values(), "".join([*words, text[at:]]))


def fold(message: str) -> tuple[str, dict[str, Chip]]:
    """A message as it is written again: its files as labels before its words, very long words as one label."""
    files, words = split_files(message)
    chips: dict[str, Chip] = {}
    for file in files:
        chips[file_label(file, {*chips, *_words_like_labels(words)})] = Chip(file.text, file.name)
    lead = "".join(f"{label} " for label in chips)
    if len(words) > FOLD_CHARACTERS:
        label = paste_label(words, chips)
        chips[label] = Chip(words)
        words = label
    return lead + words, chips


def pack(text: str, chips: Chips) -> str:
    """What is written as a draft to be stored; a text without chips is its own."""
    used = {label: asdict(chips[label]) for _, label in labels_in(text, chips)}
    if not used and not text.startswith(_PACKED):
        return text
    return _PACKED + json.dumps([text, used], ensure_ascii=False)


def unpack(draft: str) -> tuple[str, dict[str, Chip]]:
    """What was written when `pack` made this draft."""
    if not draft.startswith(_PACKED):
        return draft, {}
    text, chips = json.loads(draft[1:])
    return text, {label: Chip(**chip) for label, chip in chips.items()}


def beside(text: str, chips: Chips, others: Chips) -> tuple[str, dict[str, Chip]]:
    """The same writing with labels that can stand beside those of `others`."""
    fresh: dict[str, Chip] = {}
    parts: list[str] = []
    at = 0
    names: dict[str, str] = {}
    for (start, end), label in labels_in(text, chips):
        if label not in names:
            clash = label in others and others[label] != chips[label]
            names[label] = _free(label[1:-1], {*others, *chips, *fresh}) if clash else label
        fresh[names[label]] = chips[label]
        parts += [text[at:start], names[label]]
        at = end
    return "".join([*parts, text[at:]]), fresh


def widen(line: str, chips: Chips, start: int, end: int) -> Span:
    """The part of `line` that an edit from `start` to `end` takes: labels whole; what is written into one comes after it."""
    for (low, high), _ in labels_in(line, chips):
        if start == end:
            if low < start < high:
                return high, high
        elif start < high and low < end:
            start, end = min(start, low), max(end, high)
    return start, end


def _words_like_labels(words: str) -> set[str]:
    return set(re.findall(r"\[[^\[\]\n]*\]", words))


def _free(name: str, taken: Collection[str]) -> str:
    name = name.replace("[", "(").replace("]", ")")
    return next(label for n in range(1, len(taken) + 2) if (label := f"[{name} {n}]" if n > 1 else f"[{name}]") not in taken)
