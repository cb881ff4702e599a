"""Streamed text: whole characters, no beginnings of stop strings, nothing lost and nothing twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from localkv.chat.stream import TextStream
from localkv.errors import ModelError

SPECIAL = "<|end|>"


def byte_level() -> PreTrainedTokenizerFast:
    """One token per byte, a few words, and a special token: any text can be cut anywhere."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "Ġab", "abc", "ĠU"]
    backend = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(SPECIAL, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Words with "▁" for the space and byte tokens for what is no word, as SentencePiece models have it."""
    vocab = {f"<0x{i:02X}>": i for i in range(256)}
    for piece in ["<unk>", "▁", "▁a", "a", "ab", "b", "▁b", "é", "U"]:
        vocab[piece] = len(vocab)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(parts)
    backend.add_special_tokens([AddedToken(SPECIAL, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


TOKENIZERS = {"bytes": byte_level(), "fallback": byte_fallback()}
every_kind = pytest.mark.parametrize("kind", TOKENIZERS)


def ids_of(text: str) -> list[int]:
    """The bytes of `text`, one token each."""
    return [i for char in text for i in TOKENIZERS["bytes"].encode(char)]


def decoded(kind: str, ids: list[int]) -> str:
    return TOKENIZERS[kind].backend_tokenizer.decode(ids, skip_special_tokens=True)


def streamed(kind: str, ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZERS[kind], stop)
    return [*(stream.push(token) for token in ids), stream.finish()], stream


def any_ids(kind: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(min_value=0, max_value=len(TOKENIZERS[kind]) - 1), max_size=30)


@pytest.mark.slow
@every_kind
@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_pieces_are_the_decoded_whole(kind: str, data: st.DataObject) -> None:
    """Any ids, valid text or not: the pieces one after the other are what the tokenizer decodes at once."""
    ids = data.draw(any_ids(kind))
    pieces, stream = streamed(kind, ids)
    assert "".join(pieces) == decoded(kind, ids) == stream.text
    assert stream.kept_ids == len(ids)
    assert not stream.stopped


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=20))
@settings(max_examples=200, deadline=None)
def test_characters_are_never_broken(text: str) -> None:
    """Text sampled byte by byte appears character by character, without a replacement sign in any piece."""
    pieces, stream = streamed("bytes", ids_of(text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert stream.text == text


@given(
    text=st.text(alphabet="abU \né", max_size=30),
    stop=st.lists(st.text(alphabet="abU \né", min_size=1, max_size=4), max_size=3).map(tuple),
)
@settings(max_examples=400, deadline=None)
def test_stop_strings(text: str, stop: tuple[str, ...]) -> None:
    """What is shown ends where the stop string that is complete first begins; the kept ids reach no further."""
    pieces, stream = streamed("bytes", ids_of(text), stop)
    complete = [(text.find(word) + len(word), text.find(word)) for word in stop if word in text]
    expected = text[: min(complete)[1]] if complete else text
    assert "".join(pieces) == expected == stream.text
    assert stream.stopped == bool(complete)
    assert decoded("bytes", ids_of(text)[: stream.kept_ids]) == expected


@given(text=st.text(alphabet="ab", max_size=20), stop=st.text(alphabet="ab", min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_nothing_is_held_without_a_reason(text: str, stop: str) -> None:
    """At each moment all text is shown but the longest end that could become the stop string."""
    stream = TextStream(TOKENIZERS["bytes"], (stop,))
    for count, token in enumerate(ids_of(text), 1):
        stream.push(token)
        if stream.stopped:
            break
        held = next(n for n in range(min(len(stop) - 1, count), -1, -1) if stop.startswith(text[count - n : count]))
        assert stream.text == text[: count - held]


def test_first_complete_stop_string_wins_however_the_ids_are_cut() -> None:
    """One token that completes two stop strings at once ends the text where single bytes would have ended it."""
    whole = TOKENIZERS["bytes"].convert_tokens_to_ids("abc")
    for ids in ([whole], ids_of("abc")):
        pieces, _ = streamed("bytes", ids, ("abc", "b"))
        assert "".join(pieces) == "a"


def test_ids_within_and_past_the_stop_string_are_not_kept() -> None:
    """Ids after the stop string are ignored, those inside it are counted out, and so is one that only begins it."""
    ids = [*ids_of("hi"), TOKENIZERS["bytes"].convert_tokens_to_ids("ĠU"), *ids_of("ser: more")]
    pieces, stream = streamed("bytes", ids, ("User:",))
    assert "".join(pieces) == "hi "
    assert stream.kept_ids == 2


def test_half_a_character_of_the_stop_string_is_not_kept() -> None:
    """The first bytes of a stop string's first character show no text, but belong to it."""
    _, stream = streamed("bytes", ids_of("hié"), ("é",))
    assert stream.stopped
    assert stream.kept_ids == 2


def test_special_tokens_are_not_shown() -> None:
    """The end-of-turn token is part of the ids and no part of the text."""
    ids = [*ids_of("hi"), TOKENIZERS["bytes"].convert_tokens_to_ids(SPECIAL)]
    pieces, stream = streamed("bytes", ids)
    assert "".join(pieces) == "hi"
    assert stream.kept_ids == 3


def test_unfinished_character_at_the_end() -> None:
    """An answer that is cut inside a character shows the replacement sign once, at the end."""
    pieces, _ = streamed("bytes", ids_of("hi€")[:-1])
    assert pieces == ["h", "i", "", "", "\ufffd"]


def test_stop_string_that_completes_at_the_end() -> None:
    """Text that only the end sets free is searched for stop strings too."""
    pieces, stream = streamed("fallback", [0x41, 0x42], ("AB",))
    assert "".join(pieces) == ""
    assert stream.stopped
    assert stream.kept_ids == 0


def test_byte_tokens_that_turn_wrong() -> None:
    """A wrong byte turns the bytes before it into replacement signs: none of them was shown as something else."""
    pieces, _ = streamed("fallback", [0x41, 0xE2, TOKENIZERS["fallback"].convert_tokens_to_ids("b")])
    assert pieces == ["", "", "\ufffd\ufffdb", ""]


def test_special_token_amid_bytes() -> None:
    """A special token between byte tokens has no text and does not settle theirs."""
    tokens = TOKENIZERS["fallback"].convert_tokens_to_ids([SPECIAL, "b"])
    pieces, _ = streamed("fallback", [0xC3, tokens[0], 0xA9, tokens[1]])
    assert pieces == ["", "", "", "éb", ""]


def test_tokenizer_without_a_backend_is_refused() -> None:
    """A tokenizer that is Python alone is refused with its name and the way out."""

    class Slow:
        pass

    with pytest.raises(ModelError, match=r"Slow has no tokenizer\.json"):
        TextStream(Slow())  # type: ignore[arg-type]
