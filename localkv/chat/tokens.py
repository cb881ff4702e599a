r"""Text to token ids, with a prefix that stays: what was fed or sampled is never tokenised again.

Knows a tokenizer and its chat template; knows neither models nor records nor the database. Engine thread only: a tokenizer
keeps per-call switches inside. The caller stores the ids that come back for each line; the next render relies on them.

Who owns which ids:

    <|im_start|>user\n  hi  <|im_end|>\n<|im_start|>assistant\n | Hello.  <|im_end|> | \n<|im_start|>user\n  more ...
    `------------------ user line ---------------------------' `- assistant line -' `----- next user line ------

An assistant line holds what was sampled, its end-of-turn id too if the model wrote one; a user or system line holds all
that was fed since. If an answer was cut, the line after it begins with the end-of-turn ids that are missing.

How the template is read. It is rendered once with markers in place of the contents, which gives the template's own text
around each content, and once with the contents. Template text is tokenised with special tokens parsed, contents without:
"<|im_end|>" in a question stays text. Where the second rendering is not the first one with the markers filled in, the
template changes contents (it trims them, or drops the thoughts from old answers), and each such content is looked up in a
rendering of its own. A line whose ids say something else than the template says now diverges: it alone is tokenised again,
and the first such line is named. White space at the edges of an old line is not a divergence: it would cost a prefill and
change no word.

Rejected: comparing with the decoded ids first. Templates that print today's date would diverge at midnight, and
SentencePiece tokenizers do not decode to the text they were given.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jinja2 import TemplateError as JinjaError
from transformers import PreTrainedTokenizerBase

from localkv.errors import TemplateError
from localkv.kv.record import unpack_ids
from localkv.messages import Role

PLAIN_TEMPLATE = """\
{%- for message in messages -%}
{{- '\\n\\n' if not loop.first else '' -}}
{%- if message.role == 'user' -%}{{- 'User: ' + message.content -}}
{%- elif message.role == 'assistant' -%}{{- 'Assistant:' + message.content -}}
{%- else -%}{{- message.content -}}{%- endif -%}
{%- endfor -%}
{{- '\\n\\nAssistant:' if add_generation_prompt else '' -}}"""
"""The prompt of models without a chat template: "System\\n\\nUser: hi\\n\\nAssistant:". The answer brings its own space."""

PLAIN_STOP = ("\n\nUser:",)
"""Where such a model begins to write the other side."""


class LineLike(Protocol):
    """One message on the path from root to leaf, as far as tokens go."""

    @property
    def role(self) -> Role: ...
    @property
    def text(self) -> str: ...
    @property
    def ids(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as ids: the lines one after the other are the prompt."""

    line_ids: tuple[list[int], ...]
    diverged_at: int = -1
    """The first line that the template renders differently now than it was fed; -1: none."""
    note: str = ""
    """What diverged, as a sentence; empty: nothing."""

    @property
    def prompt(self) -> list[int]:
        return list(itertools.chain.from_iterable(self.line_ids))


@dataclass(frozen=True, slots=True)
class _Script:
    """What the template says now: `around[i]` stands before content i, `around[-1]` after the last one."""

    around: tuple[str, ...]
    contents: tuple[str, ...]


class Tokens:
    """The tokenizer and chat template of one model.

    `eos_ids` are the end ids of the generation config, if it has any. `stop_ids` end an answer; `stop_strings` do too, where
    there is no template whose end-of-turn token could.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._template: str | None = None if tokenizer.chat_template else self._plain_template()
        self.stop_strings: tuple[str, ...] = PLAIN_STOP if self._template else ()
        self._anchor = self._find_anchor()
        self._merges_system = not self._carries_system()
        own = tokenizer.eos_token_id
        self.stop_ids: frozenset[int] = frozenset(eos_ids) | self._closing_ids() | (frozenset() if own is None else {own})

    def count(self, text: str) -> int:
        """Tokens of `text` as a message's content."""
        return len(self._encode_content(text))

    def render(self, lines: Sequence[LineLike]) -> Rendered:
        """The ids of every line. Lines with ids keep them, unless the template contradicts; the others are tokenised.

        The last line is a question, which gets the generation prompt, or an answer to be continued, which gets nothing.
        Raises TemplateError if the template refuses the lines.
        """
        if lines and lines[-1].role == "assistant":
            return self._continue(lines)
        if not lines:
            return Rendered(())
        script = self._read(lines)
        stale = self._stale(lines, script)
        out: list[list[int]] = []
        diverged = -1
        for index, line in enumerate(lines):
            old = unpack_ids(line.ids)
            if old and index not in stale:
                out.append(old)
                continue
            new = self._answer_ids(script, index, old) if line.role == "assistant" else self._question_ids(script, lines, out)
            out.append(new)
            if old and new != old and diverged < 0:
                diverged = index
        return Rendered(tuple(out), diverged, _divergence(lines, diverged))

    def _continue(self, lines: Sequence[LineLike]) -> Rendered:
        last = unpack_ids(lines[-1].ids) or self._encode_content(lines[-1].text)
        if all(line.ids or not line.text for line in lines[:-1]):
            return Rendered((*(unpack_ids(line.ids) for line in lines[:-1]), last))
        before = self.render(lines[:-1])
        return Rendered((*before.line_ids, last), before.diverged_at, before.note)

    # --- ids of one line

    def _answer_ids(self, script: _Script, index: int, old: list[int]) -> list[int]:
        """An answer that was not sampled here, or whose content the template has changed; it keeps its end-of-turn ids."""
        ended, _ = self._ending(old, self._encode_template(script.around[index + 1]))
        return self._encode_content(script.contents[index]) + old[len(old) - ended :]

    def _question_ids(self, script: _Script, lines: Sequence[LineLike], earlier: list[list[int]]) -> list[int]:
        """The line after `earlier`: closes the answer before it, asks, and opens the answer after it."""
        index = len(earlier)
        before, content = script.around[index], script.contents[index]
        # "User: " + "hi" is "User:" + " hi" to most tokenizers: the space belongs to the word
        spaces = len(before) - len(before.rstrip(" "))
        ids = self._encode_template(before[: len(before) - spaces], first=index == 0)
        if index and lines[index - 1].role == "assistant":
            ids = ids[self._ending(earlier[-1], ids)[1] :]
        ids += self._encode_content(" " * spaces + content, first=not ids and index == 0)
        if index + 1 == len(lines) or lines[index + 1].role == "assistant":
            ids += self._encode_template(script.around[index + 1])
        return ids

    def _ending(self, answer: list[int], closing: list[int]) -> tuple[int, int]:
        """How many ids at the end of `answer` are the model's own closing, and how many of `closing` that makes up for."""
        same = next((n for n in range(min(len(answer), len(closing)), 0, -1) if answer[-n:] == closing[:n]), 0)
        if same or not answer or answer[-1] not in closing:
            return same, same
        # " </s>": the model leaves out the space that the template writes
        at = closing.index(answer[-1])
        blank = answer[-1] in self.stop_ids and not self._decode(closing[:at]).strip()
        return (1, at + 1) if blank else (0, 0)

    def _encode_template(self, text: str, *, first: bool = False) -> list[int]:
        return self._encode(text, first=first, specials_stay_text=False)

    def _encode_content(self, text: str, *, first: bool = False) -> list[int]:
        return self._encode(text, first=first, specials_stay_text=True)

    def _encode(self, text: str, *, first: bool, specials_stay_text: bool) -> list[int]:
        if not text:
            return []
        anchor = [] if first else self._anchor
        ids = self._tokenizer.encode(
            "\n" + text if anchor else text, add_special_tokens=False, split_special_tokens=specials_stay_text, verbose=False
        )
        if ids[: len(anchor)] != anchor:
            return self._encode(text, first=True, specials_stay_text=specials_stay_text)
        return list(ids[len(anchor) :])

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _find_anchor(self) -> list[int]:
        """The ids of a line break if this tokenizer puts a space before whatever it is given, else nothing.

        Llama's and Mistral's SentencePiece tokenizers do: a piece from the middle of a prompt is then encoded behind a line
        break, which they never merge with what follows, and the ids of the line break are cut off.
        """
        alone, anchor, behind = (self._encode(text, first=True, specials_stay_text=True) for text in ("a", "\n", "\na"))
        prepends = behind[: len(anchor)] == anchor and behind[len(anchor) :] != alone
        return anchor if prepends else []

    # --- what the template says

    def _read(self, lines: Sequence[LineLike]) -> _Script:
        """The template's text around each content, and each content as the template gives it back."""
        around = self._read_around(tuple(line.role for line in lines))
        real = self._apply([(line.role, line.text) for line in lines])
        contents: list[str] = []
        at = len(around[0]) if real.startswith(around[0]) else -1
        for index, line in enumerate(lines):
            after = around[index + 1]
            content = _cut(line.text, real, at, after, last=index + 1 == len(lines)) if at >= 0 else None
            if content is None:
                content = self._read_content(lines, index, around)
            contents.append(content)
            # where the template's text itself depends on this content, what follows is not found by its place any more
            at = at + len(content) + len(after) if at >= 0 and real.startswith(content + after, at) else -1
        return _Script(around, tuple(contents))

    def _read_content(self, lines: Sequence[LineLike], index: int, around: tuple[str, ...]) -> str:
        """Content `index` as the template gives it back, from a rendering in which all other contents are markers."""
        text = lines[index].text
        opening = next(char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text)
        marks = [_mark(opening, number) for number in range(len(lines))]
        shown = self._apply([(line.role, text if i == index else marks[i]) for i, line in enumerate(lines)])
        start = shown.find(marks[index - 1]) + len(marks[index - 1]) if index else 0
        end = shown.find(marks[index + 1]) if index + 1 < len(lines) else len(shown)
        span = shown[start:end]
        head = _common(span, around[index])
        tail = _common(span[head:][::-1], around[index + 1][::-1])
        return span[head : len(span) - tail]

    def _read_around(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        marks = [_mark("\ue000", number) for number in range(len(roles))]
        rest = self._apply(list(zip(roles, marks, strict=True)))
        around: list[str] = []
        for number, mark in enumerate(marks):
            piece, found, rest = rest.partition(mark)
            if not found or mark in rest:
                raise TemplateError(
                    f"the chat template drops, moves or repeats message {number + 1} of {len(roles)} ({roles[number]}); "
                    "this model can't hold such a conversation"
                )
            around.append(piece)
        return (*around, rest)

    def _apply(self, messages: list[tuple[Role, str]]) -> str:
        """The rendered text, with the generation prompt if a question is last. Raises TemplateError."""
        if self._merges_system and len(messages) > 1 and messages[0][0] == "system":
            messages = [("user", f"{messages[0][1]}\n\n{messages[1][1]}"), *messages[2:]]
        asked = [{"role": role, "content": content} for role, content in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                asked, chat_template=self._template, tokenize=False, add_generation_prompt=asked[-1]["role"] != "assistant"
            )
        except (JinjaError, TypeError, ValueError, LookupError, AttributeError) as error:
            roles = ", ".join(message["role"] for message in asked)
            raise TemplateError(f"the model's chat template refuses this conversation ({roles}): {error}") from error
        return str(text)

    # --- what was fed

    def _stale(self, lines: Sequence[LineLike], script: _Script) -> set[int]:
        """The lines whose ids say something else than the template does now.

        Every earlier render left the lines as the template had them then, so one comparison is enough: with the template's
        text as it was when the last old question was asked.
        """
        last = max((i for i, line in enumerate(lines) if line.ids and line.role != "assistant"), default=-1)
        if last < 0:
            return set()
        fed = self._read_around(tuple(line.role for line in lines[: last + 1]))
        stale: set[int] = set()
        for index, line in enumerate(lines[: last + 2]):
            if not line.ids:
                continue
            if line.role == "assistant":
                changed = not self._holds(line, script.contents[index], script.around[index + 1])
            else:
                changed = fed[index] != script.around[index] or script.contents[index].strip() != line.text.strip()
                if index == last or lines[index + 1].role == "assistant":
                    changed = changed or not script.around[index + 1].startswith(fed[index + 1])
            if changed:
                stale.add(index)
        return stale

    def _holds(self, line: LineLike, content: str, closing: str) -> bool:
        """Do the line's ids say `content`? They do if the template did not touch the text, or was followed before."""
        if content.strip() == line.text.strip():
            return True
        ids = unpack_ids(line.ids)
        ended, _ = self._ending(ids, self._encode_template(closing))
        return self._decode(ids[: len(ids) - ended]).strip() == content.strip()

    # --- what kind of template it is

    def _plain_template(self) -> str:
        begins = self._tokenizer.encode("", add_special_tokens=True)[:1] == [self._tokenizer.bos_token_id]
        return ("{{- bos_token -}}" if begins else "") + PLAIN_TEMPLATE

    def _carries_system(self) -> bool:
        """Does the template put a system text first and leave it there?

        Gemma's refuses it; Mistral's moves it to the newest question, which would change the whole prompt with each turn.
        """
        self._merges_system = False
        try:
            one = self._read_around(("system", "user"))
            two = self._read_around(("system", "user", "assistant", "user"))
        except TemplateError:
            return False
        return one[:2] == two[:2]

    def _closing_ids(self) -> frozenset[int]:
        """The token of its own that closes an answer in the template.

        Not where the template writes more before an answer than the generation prompt says (gpt-oss: a channel). There
        the model writes several parts, and this token ends each of them.
        """
        if self._template:
            return frozenset()
        try:
            asked, told = self._read_around(("user",)), self._read_around(("user", "assistant", "user"))
        except TemplateError:
            return frozenset()
        if told[1].startswith(asked[1]) and told[1][len(asked[1]) :].strip():
            return frozenset()
        added = self._tokenizer.added_tokens_decoder
        for token in self._encode_template(told[2]):
            if token in added:
                return frozenset({token})
            if self._decode([token]).strip():
                break
        return frozenset()


def _mark(opening: str, number: int) -> str:
    return f"{opening}{number:06d}\ue001"


def _cut(text: str, real: str, at: int, after: str, *, last: bool) -> str | None:
    """The content at `at` in the rendering `real`, if it is `text`, trimmed or shortened; None: it takes a closer look.

    Shortened is what the template kept a part of: 200 answers without their thoughts in 50 ms, not in 1 s.
    """
    for content in (text, text.strip(), text.rstrip(), text.lstrip()):
        if real.startswith(content + after, at):
            return content
    end = real.find(after, at) if after and not last and after not in text else -1
    found = real[at:end] if end >= 0 else ""
    return found if found and found in text else None


def _common(left: str, right: str) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _divergence(lines: Sequence[LineLike], index: int) -> str:
    if index < 0:
        return ""
    return f"the chat template renders message {index + 1} ({lines[index].role}) differently now than when it was fed"
