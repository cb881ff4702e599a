"""How people write the way tokens are drawn: by name, with the nearest name on a mistake, and read back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.sampling import LIMITS, changed_setting, describe, read_stops, show_setting
from localkv.config import SamplingSection
from localkv.errors import ConfigError

TEXTS = st.text(min_size=1, max_size=6).filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text))
SAMPLINGS = st.builds(
    SamplingSection,
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 1_000),
    top_p=st.floats(0.001, 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.001, 10),
    max_tokens=st.integers(1, 10**6),
    seed=st.integers(0, 2**31),
    stop=st.lists(TEXTS, max_size=4).map(tuple),
)


@given(SAMPLINGS)
def test_what_is_shown_is_read_the_same(sampling):
    """A dialog that is kept without a change changes nothing, whatever the stop strings hold."""
    again = SamplingSection()
    for key in LIMITS:
        again = changed_setting(again, key, show_setting(sampling, key))
    assert again == sampling


def test_every_setting_has_its_limits_told():
    """A setting that is added to the configuration is in the dialog, too."""
    assert set(LIMITS) == set(SamplingSection.__struct_fields__)


@pytest.mark.parametrize(("text", "stops"), [
    ("END ###", ("END", "###")),
    ('"END" "\\n\\n"', ("END", "\n\n")),
    ('"a b", c', ("a b", "c")),
    ('["a", "b"]', ("a", "b")),
    ("", ()),
    ('""', ()),
])  # fmt: skip
def test_stop_strings(text, stops):
    """Words, quoted strings with escapes, and lists are all understood; an empty string would stop at once and is none."""
    assert read_stops(text) == stops


@pytest.mark.parametrize(("key", "text", "told"), [
    ("temprature", "1", 'nearest is "temperature"'),
    ("", "", "the nearest is"),
    ("temperature", "9", "0 to 5"),
    ("temperature", "warm", "write a number"),
    ("temperature", "nan", "0 to 5"),
    ("top_p", "0", "above 0, up to 1"),
    ("max_tokens", "", "write a whole number"),
    ("max_tokens", "1.5", "write a whole number"),
    ("stop", '"a', "quote does not end"),
    ("stop", "[1]", "strings that end an answer"),
    ("stop", '["a"', "strings that end an answer"),
    ("stop", '"\\x"', "strings that end an answer"),
    ("stop", '"\\ud800"', "strings that end an answer"),
    ("stop", "[" * 5_000, "strings that end an answer"),
    ("stop", "[" * 2_000 + "]" * 2_000, "strings that end an answer"),
    ("stop", "[{a=" * 2_000, "strings that end an answer"),
    ("stop", "[" + "9" * 5_000 + "]", "strings that end an answer"),
    ("stop", '"' + "a" * 5_000 + "\\x" + '"', "strings that end an answer"),
    ("seed", "9" * 5_000, "write a whole number"),
], ids=lambda value: value[:20])  # fmt: skip
def test_mistakes_say_what_is_taken(key, text, told):
    """A wrong name has the nearest one told, a wrong value what the setting takes."""
    with pytest.raises(ConfigError, match=told) as caught:
        changed_setting(SamplingSection(), key, text)
    assert key != "stop" or len(str(caught.value)) < 400


@given(st.text(max_size=12), st.sampled_from(sorted(LIMITS)))
def test_any_text_is_a_value_or_a_sentence(text, key):
    """Nothing that is typed raises anything else."""
    try:
        changed = changed_setting(SamplingSection(), key, text)
    except ConfigError:
        return
    assert describe(changed)
