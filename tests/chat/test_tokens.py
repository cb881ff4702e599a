"""Text to ids: the prefix stays, template and contents are told apart, and every odd template has an answer."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from localkv.chat.tokens import PLAIN_STOP, Rendered, Role, Tokens
from localkv.errors import TemplateError
from localkv.kv.record import pack_ids, unpack_ids

TRAINING = [
    "Hello, how are you today? I am fine, thank you. What is the capital of France? Paris is the capital of France.",
    "user assistant system User: Assistant: You are a helpful assistant named Test. think Today Date: model\n\n",
    "the quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. 0123456789",
]
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""How Llama 3 and Qwen cut text into words."""
SPECIALS = [
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
    "<bos>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "<|start|>", "<|message|>", "<|channel|>", "<|end|>",
    "<|return|>",
]  # fmt: skip

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant named Test<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{{ '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + strftime_now('%d %b %Y') + '\n\n' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] | trim }}{% set messages = messages[1:] %}{% endif %}"
    "{{ '<|eot_id|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
QWEN3 = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
    "{%- set ns = namespace(last=0) %}{%- for message in messages %}{%- if message.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}"
    "{%- elif message.role == 'assistant' %}{%- set reasoning = '' %}{%- if '</think>' in content %}"
    "{%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{%- if loop.index0 > ns.last and (loop.last or reasoning) %}"
    "{{- '<|im_start|>assistant\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}"
    "{%- else %}{{- '<|im_start|>assistant\n' + content }}{%- endif %}{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|im_start|>assistant\n' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}"
    "{% if loop.last and system is defined %}{{ '[INST] ' + system + '\n\n' + m.content + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
HARMONY = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% else %}"
    "{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
KINDS = {
    "chatml": (CHATML, "<s>", "<|im_end|>"),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "gemma": (GEMMA, "<bos>", "<end_of_turn>"),
    "qwen3": (QWEN3, "<s>", "<|im_end|>"),
    "r1": (R1, "<s>", "<|im_end|>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "harmony": (HARMONY, "<s>", "<|return|>"),
    "plain": (None, "<s>", "</s>"),
}
STABLE = ("chatml", "llama3", "gemma", "mistral", "harmony", "plain")
"""Templates that leave old turns as they are."""


@dataclass(frozen=True)
class Line:
    role: Role
    text: str
    ids: bytes = b""


def byte_level() -> Tokenizer:
    """A byte-level BPE as GPT-2, Llama 3 and Qwen have it, trained here."""
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORD), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TRAINING, trainer)
    return backend


def sentencepiece() -> Tokenizer:
    """A BPE with byte fallback that puts a space before each text, as Llama 2 and Mistral have it."""
    words = ["▁", "▁hi", "▁you", "hi", "you", "▁User", "▁Assistant", ":", "▁[", "a", "▁a"]
    vocab = {f"<0x{i:02X}>": i for i in range(256)}
    for text in ["<unk>", *SPECIALS, *words, *map(chr, range(33, 127))]:
        vocab.setdefault(text, len(vocab))
    merges = [("h", "i"), ("▁", "hi"), ("▁", "a")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(parts)
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return backend


BYTE_LEVEL = byte_level().to_str()
SENTENCEPIECE = sentencepiece().to_str()


def tokenizer(kind: str, backend: str = BYTE_LEVEL) -> PreTrainedTokenizerFast:
    template, bos, eos = KINDS[kind]
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(backend), bos_token=bos, eos_token=eos)
    made.chat_template = template
    return made


TOKENIZERS = {kind: tokenizer(kind) for kind in KINDS}
TOKENS = {kind: Tokens(made) for kind, made in TOKENIZERS.items()}
every_kind = pytest.mark.parametrize("kind", KINDS)


def user(text: str) -> Line:
    return Line("user", text)


def decode(kind: str, ids: list[int], *, specials: bool = True) -> str:
    return TOKENIZERS[kind].decode(ids, skip_special_tokens=not specials, clean_up_tokenization_spaces=False)


def stored(lines: list[Line], rendered: Rendered) -> list[Line]:
    """What the face stores after a turn."""
    return [replace(line, ids=pack_ids(ids)) for line, ids in zip(lines, rendered.line_ids, strict=True)]


def answered(kind: str, lines: list[Line], answer: list[int]) -> list[Line]:
    """The conversation after the model has sampled `answer` to `lines`."""
    past = stored(lines, TOKENS[kind].render(lines))
    return [*past, Line("assistant", decode(kind, answer, specials=False), pack_ids(answer))]


def said(kind: str, text: str, *, closed: bool = True) -> list[int]:
    """An answer as the model would sample it."""
    end = [TOKENIZERS[kind].convert_tokens_to_ids(KINDS[kind][2])] if closed else []
    return TOKENIZERS[kind].encode(text, add_special_tokens=False) + end


words = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)
plain_words = st.from_regex(r"[A-Za-z0-9,.é漢]{1,8}( [A-Za-z0-9,.?é漢]{1,8}){0,5}", fullmatch=True)
any_ids = st.lists(st.integers(min_value=0, max_value=len(TOKENIZERS["chatml"]) - 1), min_size=1, max_size=24)


@pytest.mark.slow
@every_kind
@given(question=plain_words, system=st.none() | plain_words)
@settings(max_examples=30, deadline=None)
def test_first_turn_is_what_the_template_gives(kind: str, question: str, system: str | None) -> None:
    """For plain text, pieces and the tokenizer's own apply_chat_template agree, system text or not."""
    made = TOKENIZERS[kind]
    lines = [user(question)] if system is None else [Line("system", system), user(question)]
    prompt = TOKENS[kind].render(lines).prompt
    messages = [{"role": line.role, "content": line.text} for line in lines]
    if system is not None and kind in ("gemma", "mistral"):
        messages = [{"role": "user", "content": f"{system}\n\n{question}"}]
    if kind == "plain":
        head = f"{system}\n\n" if system is not None else ""
        expected = made.encode(f"{head}User: {question}\n\nAssistant:", add_special_tokens=False)
    else:
        expected = made.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert decode(kind, prompt) == decode(kind, expected)
    if "\n\n" not in decode(kind, expected[5:]) or kind not in ("gemma", "mistral"):
        assert prompt == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", STABLE)
@example(questions=["", "00", ""], answers=[[0], [0], [0], [0]], system="0")
@given(
    questions=st.lists(words, min_size=2, max_size=4),
    answers=st.lists(any_ids, min_size=4, max_size=4),
    system=st.none() | words.filter(bool),
)
@settings(max_examples=40, deadline=None)
def test_prefix_is_stable(kind: str, questions: list[str], answers: list[list[int]], system: str | None) -> None:
    """Whatever was asked and sampled: the next turn's prompt begins with this turn's prompt and answer, id by id."""
    lines: list[Line] = [] if system is None else [Line("system", system)]
    before: list[int] = []
    for question, answer in zip(questions, answers, strict=False):
        lines.append(user(question))
        rendered = TOKENS[kind].render(lines)
        assert rendered.prompt[: len(before)] == before
        assert rendered.diverged_at == -1
        lines = answered(kind, lines, answer)
        assert unpack_ids(lines[-1].ids) == answer
        before = rendered.prompt + answer


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chatml", "gemma", "qwen3", "llama3"])
@given(turns=st.lists(st.tuples(plain_words, plain_words), min_size=1, max_size=3), question=plain_words)
@settings(max_examples=25, deadline=None)
def test_later_turns_are_what_the_template_gives(kind: str, turns: list[tuple[str, str]], question: str) -> None:
    """With closed answers of plain text the incremental prompt is the one that the template gives for the whole."""
    lines: list[Line] = []
    for asked, told in turns:
        lines = answered(kind, [*lines, user(asked)], said(kind, told))
    lines.append(user(question))
    messages = [{"role": line.role, "content": line.text} for line in lines]
    whole = TOKENIZERS[kind].apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert TOKENS[kind].render(lines).prompt == whole


@every_kind
def test_special_tokens_typed_by_a_person_stay_text(kind: str) -> None:
    """A question that spells out the template's own tokens can't close its turn or open another one."""
    typed = "".join(SPECIALS)
    quiet, loud = (TOKENS[kind].render([user(text)]).prompt for text in ("hi", f"hi {typed}"))
    special = set(TOKENIZERS[kind].all_special_ids) | set(TOKENIZERS[kind].convert_tokens_to_ids(SPECIALS))
    assert [token for token in loud if token in special] == [token for token in quiet if token in special]
    assert typed in decode(kind, loud)


@every_kind
@pytest.mark.parametrize("closed", [True, False])
def test_missing_closing_ids_are_fed_once(kind: str, closed: bool) -> None:
    """The end-of-turn token stands behind an answer exactly once, whether the model sampled it or was cut."""
    lines = [*answered(kind, [user("hi")], said(kind, "Hello.", closed=closed)), user("more")]
    text = decode(kind, TOKENS[kind].render(lines).prompt)
    after = text.partition("Hello.")[2].partition("more")[0]
    end = "<|end|>" if kind == "harmony" else KINDS[kind][2]
    assert after.count(end) == (1 if kind != "plain" else int(closed))


def test_continue_adds_nothing() -> None:
    """An answer that is continued is fed as it is, without closing or generation prompt."""
    lines = answered("chatml", [Line("system", "Be brief."), user("hi")], said("chatml", "Hel", closed=False))
    rendered = TOKENS["chatml"].render(lines)
    assert rendered.prompt == [token for line in lines for token in unpack_ids(line.ids)]
    assert rendered.diverged_at == -1


def test_continue_tokenises_what_has_no_ids() -> None:
    """A conversation from elsewhere, cut in its last answer, gets its ids on the way and ends in that answer."""
    lines = [user("hi"), Line("assistant", "Hello."), user("more"), Line("assistant", "Wel")]
    prompt = TOKENS["chatml"].render(lines).prompt
    assert decode("chatml", prompt).endswith("<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\nWel")


@every_kind
def test_conversation_without_ids(kind: str) -> None:
    """A conversation that another program wrote is tokenised whole, as the template has it."""
    lines = [user("hi"), Line("assistant", "Hello."), user("more")]
    rendered = TOKENS[kind].render(lines)
    assert rendered.diverged_at == -1
    if kind != "plain":
        messages = [{"role": line.role, "content": line.text} for line in lines]
        text = TOKENIZERS[kind].apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert decode(kind, rendered.prompt) == text


@every_kind
def test_bos_once(kind: str) -> None:
    """The sequence begins with one beginning-of-sequence token where the template writes one, and never holds two."""
    lines = [*answered(kind, [user("hi")], said(kind, "Hello.")), user("more")]
    bos = TOKENIZERS[kind].bos_token_id
    prompt = TOKENS[kind].render(lines).prompt
    assert prompt.count(bos) == int(kind in ("llama3", "gemma", "r1", "mistral"))
    assert bos not in prompt[1:]


def test_plain_prompt_begins_with_bos_if_the_tokenizer_says_so() -> None:
    """Without a template the tokenizer's own habit decides about the beginning-of-sequence token."""
    from tokenizers.processors import TemplateProcessing

    backend = Tokenizer.from_str(BYTE_LEVEL)
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokens = Tokens(made)
    prompt = tokens.render([user("hi")]).prompt
    assert prompt[0] == made.bos_token_id
    assert prompt.count(made.bos_token_id) == 1
    assert tokens.stop_strings == PLAIN_STOP


def test_thoughts_that_the_template_drops_diverge_once() -> None:
    """Qwen 3 drops the thoughts of earlier answers: that answer is named and tokenised again, the turn after it is not."""
    thought = "<think>\nthe quick fox\n</think>\n\nHello."
    lines = [*answered("qwen3", [user("hi")], said("qwen3", thought)), user("more")]
    rendered = TOKENS["qwen3"].render(lines)
    assert rendered.diverged_at == 1
    assert "message 2 (assistant)" in rendered.note
    assert rendered.line_ids[0] == unpack_ids(lines[0].ids)
    assert rendered.line_ids[1] == said("qwen3", "Hello.")
    messages = [{"role": line.role, "content": line.text} for line in lines]
    assert decode("qwen3", rendered.prompt) == TOKENIZERS["qwen3"].apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    later = [*answered("qwen3", stored(lines, rendered), said("qwen3", "Yes.")), user("and")]
    again = TOKENS["qwen3"].render(later)
    assert again.diverged_at == -1
    assert again.prompt[: len(rendered.prompt)] == rendered.prompt


def test_each_new_thought_diverges_where_it_stands() -> None:
    """The second answer with thoughts is named next; the first, tokenised again before, keeps its ids."""
    thought = "<think>\nfox\n</think>\n\n"
    lines = [*answered("qwen3", [user("hi")], said("qwen3", thought + "Hello.")), user("more")]
    lines = [*answered("qwen3", stored(lines, TOKENS["qwen3"].render(lines)), said("qwen3", thought + "Yes.")), user("and")]
    assert TOKENS["qwen3"].render(lines).diverged_at == 3


def test_generation_prompt_that_history_does_not_repeat_diverges() -> None:
    """DeepSeek R1 opens the thought itself and leaves it out of old turns: the question that was fed with it is named."""
    lines = [*answered("r1", [user("hi")], said("r1", "fox</think>Hello.")), user("more")]
    rendered = TOKENS["r1"].render(lines)
    assert rendered.diverged_at == 0
    assert "<think>" not in decode("r1", rendered.prompt).removesuffix("<think>\n")
    later = [*answered("r1", stored(lines, rendered), said("r1", "dog</think>Yes.")), user("and")]
    assert TOKENS["r1"].render(later).diverged_at == 2


def test_today_is_not_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that prints the date does not throw the conversation away at midnight."""
    lines = answered("llama3", [user("hi")], said("llama3", "Hello."))
    yesterday = KINDS["llama3"][0].replace("%d %b %Y", "31 Dec 1999")
    monkeypatch.setattr(TOKENIZERS["llama3"], "chat_template", yesterday)
    rendered = TOKENS["llama3"].render([*lines, user("more")])
    assert rendered.diverged_at == -1
    assert rendered.line_ids[0] == unpack_ids(lines[0].ids)


def test_white_space_that_the_template_trims() -> None:
    """New contents are tokenised trimmed as the template has them; an old answer with space at its edge is left alone."""
    lines = answered("llama3", [user("  hi \n")], said("llama3", " Hello.\n", closed=False))
    assert "\n\nhi<|eot_id|>" in decode("llama3", unpack_ids(lines[0].ids))
    rendered = TOKENS["llama3"].render([*lines, user(" more ")])
    assert rendered.diverged_at == -1
    assert " Hello.\n<|eot_id|>" in decode("llama3", rendered.prompt)


def test_system_text_where_the_template_has_no_such_role() -> None:
    """Gemma refuses a system role: the text leads the first question, and stays there when the conversation goes on."""
    lines = [Line("system", "Be brief."), user("hi")]
    first = TOKENS["gemma"].render(lines)
    assert decode("gemma", first.prompt) == "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n"
    assert decode("gemma", first.line_ids[0]).endswith("Be brief.")


def test_system_text_that_the_template_moves_stays_put() -> None:
    """Mistral moves the system text to the newest question; here it stays with the first, so that the prefix is stable."""
    lines = answered("mistral", [Line("system", "Be brief."), user("hi")], said("mistral", " Hello."))
    text = decode("mistral", TOKENS["mistral"].render([*lines, user("more")]).prompt)
    assert text == "<s>[INST] Be brief.\n\nhi[/INST] Hello.</s>[INST] more[/INST]"


def test_system_text_that_changes_its_surroundings_is_merged() -> None:
    """A template that frames the system text by the length of the conversation can't keep it: it joins the first question."""
    made = tokenizer("chatml")
    made.chat_template = "{% if messages | length > 2 %}[long]{% endif %}" + CHATML
    lines = [Line("system", "Be brief."), user("hi")]
    assert "user\nBe brief.\n\nhi<|im_end|>" in decode("chatml", Tokens(made).render(lines).prompt)


def test_closing_behind_a_space_is_fed_once() -> None:
    """Llama 2 writes " </s>" where the model samples "</s>": the space that is missing does not double the token."""
    made = tokenizer("mistral")
    made.chat_template = MISTRAL.replace("m.content + eos_token", "m.content + ' ' + eos_token")
    tokens = Tokens(made)
    lines = stored([user("hi")], tokens.render([user("hi")]))
    lines.append(Line("assistant", " Hello.", pack_ids(said("mistral", " Hello."))))
    assert (
        decode("mistral", tokens.render([*lines, user("more")]).prompt) == "<s>[INST] hi[/INST] Hello.</s>[INST] more[/INST]"
    )


def test_content_that_the_template_always_changes_is_no_divergence() -> None:
    """A template that rewrites every question the same way, each time, renders the ids that were fed."""
    made = tokenizer("chatml")
    made.chat_template = CHATML.replace("message['content']", "message['content'] | replace('fox', 'dog')")
    tokens = Tokens(made)
    lines = stored([user("a fox")], tokens.render([user("a fox")]))
    assert "a dog" in decode("chatml", unpack_ids(lines[0].ids))
    lines.append(Line("assistant", "Hello.", pack_ids(said("chatml", "Hello."))))
    assert tokens.render([*lines, user("more")]).diverged_at == -1


def test_default_system_text_of_the_template() -> None:
    """Text that the template adds by itself belongs to the first line, and gives way to the person's own."""
    default = "You are a helpful assistant named Test"
    assert default in decode("chatml", TOKENS["chatml"].render([user("hi")]).line_ids[0])
    assert default not in decode("chatml", TOKENS["chatml"].render([Line("system", "Be brief."), user("hi")]).prompt)


def test_refusal_is_a_sentence() -> None:
    """What the template refuses is said with its own reason and the roles."""
    with pytest.raises(TemplateError, match=r"refuses this conversation \(user, user\).*must alternate"):
        TOKENS["gemma"].render([user("hi"), user("hello?")])


def test_template_that_loses_a_message_is_refused() -> None:
    """A template that shows only the newest question can't hold a conversation, and says so."""
    made = tokenizer("chatml")
    made.chat_template = "{{ messages[-1].content }}"
    tokens = Tokens(made)
    assert decode("chatml", tokens.render([user("hi")]).prompt) == "hi"
    with pytest.raises(TemplateError, match="drops, moves or repeats message 1 of 3"):
        tokens.render([user("hi"), Line("assistant", "Hello."), user("more")])


def test_question_without_an_answer_loses_its_generation_prompt() -> None:
    """A question whose answer was removed is followed by the next question; its opened answer is taken back and named."""
    lines = stored([user("hi")], TOKENS["chatml"].render([user("hi")]))
    rendered = TOKENS["chatml"].render([*lines, user("hello?")])
    assert rendered.diverged_at == 0
    assert decode("chatml", rendered.prompt).count("<|im_start|>assistant") == 1


def test_retried_question_keeps_its_ids() -> None:
    """Asking again after a failure feeds the same ids."""
    lines = stored([user("hi")], TOKENS["qwen3"].render([user("hi")]))
    rendered = TOKENS["qwen3"].render(lines)
    assert rendered.prompt == unpack_ids(lines[0].ids)
    assert rendered.diverged_at == -1


@every_kind
def test_stop_ids(kind: str) -> None:
    """An answer ends at the tokenizer's end id, at those of the generation config and at the template's end of turn."""
    made = TOKENIZERS[kind]
    expected = {made.eos_token_id, 7}
    assert Tokens(made, [7]).stop_ids == expected
    made = tokenizer(kind)
    made.eos_token = "<|start|>"
    closing = {made.convert_tokens_to_ids(KINDS[kind][2])} if kind not in ("harmony", "plain", "mistral") else set()
    assert Tokens(made).stop_ids == {made.eos_token_id} | closing


def test_stop_ids_leave_the_parts_of_an_answer_alone() -> None:
    """gpt-oss ends its analysis with the token that closes old answers: it must not end the answer."""
    assert TOKENIZERS["harmony"].convert_tokens_to_ids("<|end|>") not in TOKENS["harmony"].stop_ids


@pytest.mark.parametrize("kind", ["mistral", "plain"])
def test_pieces_of_a_tokenizer_that_adds_spaces(kind: str) -> None:
    """A SentencePiece tokenizer puts a space before each text; pieces from the middle of a prompt don't get one."""
    made = tokenizer(kind, SENTENCEPIECE)
    prompt = Tokens(made).render([user("hi you")]).prompt
    text = "".join(made.convert_ids_to_tokens(prompt))
    assert "▁hi▁you" in text
    assert "▁▁" not in text


@given(text=words)
@settings(max_examples=50, deadline=None)
def test_count(text: str) -> None:
    """The count is that of the text alone, specials spelled out."""
    assert TOKENS["chatml"].count(text) == len(
        TOKENIZERS["chatml"].encode(text, add_special_tokens=False, split_special_tokens=True)
    )
    assert TOKENS["chatml"].count("<|im_end|>") > 1


def test_many_turns_render_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of template renderings does not grow with the conversation: long chats start as fast as short ones."""
    calls: list[int] = []
    made = tokenizer("chatml")
    tokens = Tokens(made)
    lines: list[Line] = []
    for turn in range(20):
        lines = answered("chatml", [*lines, user(f"question {turn}")], said("chatml", "Hello."))
    real = made.apply_chat_template
    monkeypatch.setattr(made, "apply_chat_template", lambda *a, **k: calls.append(1) or real(*a, **k))
    tokens.render([*lines, user("more")])
    assert len(calls) == 3
