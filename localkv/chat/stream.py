"""Token ids to text that may be shown while it is still being written.

Knows a tokenizer and stop strings; knows neither models, templates nor the screen. Lives on the engine thread, one object per
answer.

What is shown is never taken back:
- bytes of an unfinished character stay inside, and so does a run of byte tokens ("<0x41>"), whose text is settled only by
  the token after it: a wrong byte at its end turns the whole run into U+FFFD (DecodeStream raises a bare Exception then, if
  it has let go of the first part);
- text that may be the beginning of a stop string stays inside until it is known not to be.

The pieces, one after the other, are the decoded text of all ids, or what comes before the first stop string.
"""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from localkv.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The tokenizers.Tokenizer inside `tokenizer`. Raises ModelError if it is written in Python alone."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} has no tokenizer.json form and can't be streamed; "
            "choose a model folder that holds a tokenizer.json"
        )
    return backend


class TextStream:
    """The text of one answer, piece by piece."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()) -> None:
        self._backend = backend_of(tokenizer)
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._silent = {number for number, token in self._backend.get_added_tokens_decoder().items() if token.special}
        self._stop = tuple(text for text in stop if text)
        self._ids: list[int] = []
        self._lengths: list[int] = []
        """Characters known after each id, shown or held."""
        self._byte_run: list[int] = []
        self._known = ""
        """All decoded text so far."""
        self._shown = 0
        self._stop_start = -1

    @property
    def stopped(self) -> bool:
        """A stop string is complete; further ids are ignored."""
        return self._stop_start >= 0

    @property
    def text(self) -> str:
        """All text that was returned so far."""
        return self._known[: self._shown]

    @property
    def kept_ids(self) -> int:
        """How many of the pushed ids belong to the answer: those whose text ends before the stop string begins.

        An id that holds the last words and the beginning of the stop string does not belong, though its first part is shown.
        """
        if not self.stopped:
            return len(self._ids)
        count = sum(1 for length in self._lengths if length <= self._stop_start)
        while count and len(self._decode(self._ids[:count])) > self._stop_start:
            count -= 1
        return count

    def push(self, token: int) -> str:
        """The text that may be shown now that `token` was sampled; often empty."""
        if self.stopped:
            return ""
        self._ids.append(token)
        self._known += self._step(token)
        self._lengths.append(len(self._known))
        return self._release(len(self._known) - self._held())

    def finish(self) -> str:
        """The text that was held back. An unfinished character shows as U+FFFD, as it does in the decoded whole."""
        if self.stopped:
            return ""
        self._known += self._decode(self._ids)[len(self._known) :]
        return self._release(len(self._known))

    def _step(self, token: int) -> str:
        name = self._backend.id_to_token(token)
        is_byte = name is not None and _BYTE_TOKEN.fullmatch(name)
        # ids without text do not end a run: the bytes on both sides of them are decoded together
        if is_byte or (self._byte_run and (name is None or token in self._silent)):
            self._byte_run.append(token)
            return ""
        tokens, self._byte_run = [*self._byte_run, token], []
        return self._decoder.step(self._backend, tokens) or ""

    def _release(self, end: int) -> str:
        """The text up to `end`, or up to the stop string that is complete first: the same for every way of splitting."""
        # what could begin a stop string was held back, so none begins in shown text
        found = [(at + len(stop), at) for stop in self._stop if (at := self._known.find(stop, self._shown)) >= 0]
        if found:
            self._stop_start = end = min(found)[1]
        piece = self._known[self._shown : end]
        self._shown = max(end, self._shown)
        return piece

    def _held(self) -> int:
        """Length of the longest end of the known text that a stop string begins with."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(self._known) - self._shown), 0, -1):
            if any(stop.startswith(self._known[-length:]) for stop in self._stop):
                return length
        return 0

    def _decode(self, ids: list[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=True))
