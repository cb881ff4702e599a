"""Drawing tokens: seeded by position alone, and filtered as transformers filters."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from localkv.commands.bench import tiny
from localkv.config import SamplingSection
from localkv.engine.sample import Sampler, step_seed

SECTIONS = st.builds(
    SamplingSection,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.8]),
    top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
)


@pytest.fixture(scope="module")
def model():
    return tiny.build_model("llama")


def scores(seed: int) -> torch.Tensor:
    return torch.randn(tiny.VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


@given(section=SECTIONS, seed=st.integers(0, 5))
def test_one_step_is_filtered_as_transformers_does(model, section, seed):
    """The processors and their order are those that `generate` builds from the same settings."""
    config = GenerationConfig(
        do_sample=True,
        temperature=section.temperature,
        top_k=section.top_k,
        top_p=section.top_p,
        min_p=section.min_p or None,
        repetition_penalty=section.repetition_penalty,
    )
    ids = torch.tensor([[3, 7, 7, 100]])
    theirs = model._get_logits_processor(config, input_ids_seq_length=4, device="cpu")
    expected = theirs(ids, scores(seed).unsqueeze(0))
    found = Sampler(section)._processors(ids, scores(seed).unsqueeze(0))
    assert torch.equal(found, expected)


def test_zero_temperature_takes_the_likeliest():
    """At temperature 0 no filter but the repetition penalty counts, and nothing is drawn."""
    sampler = Sampler(SamplingSection(temperature=0, top_k=3, top_p=0.1, min_p=0.5))
    assert all(sampler.draw(scores(i), [], i) == int(scores(i).argmax()) for i in range(5))


def test_the_penalty_counts_at_zero_temperature_too():
    """What was said already becomes less likely."""
    logits = torch.zeros(tiny.VOCABULARY)
    logits[5], logits[6] = 1.0, 0.9
    sampler = Sampler(SamplingSection(temperature=0, repetition_penalty=2.0))
    assert sampler.draw(logits, [1, 2], 2) == 5
    assert sampler.draw(logits, [1, 5], 2) == 6


def test_a_draw_depends_on_seed_and_position_alone():
    """No state is carried from draw to draw: a conversation that was paused or restored draws what it would have drawn."""
    section = SamplingSection(temperature=1.0, top_p=1.0, seed=4)
    forward = Sampler(section)
    drawn = [forward.draw(scores(i), [], i) for i in range(20)]
    assert [Sampler(section).draw(scores(i), [], i) for i in reversed(range(20))] == drawn[::-1]
    torch.manual_seed(99)
    assert Sampler(section).draw(scores(7), [], 7) == drawn[7]


def test_drawing_leaves_torch_alone():
    """The process's own random numbers are as if nothing had been drawn."""
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    Sampler(SamplingSection(temperature=1.0)).draw(scores(1), [], 1)
    assert torch.equal(torch.rand(1), expected)


def test_positions_and_seeds_give_different_numbers():
    """Neither the next position nor the next seed draws the same number, and none is close to another by construction."""
    seeds = {step_seed(seed, position) for seed in range(20) for position in range(200)}
    assert len(seeds) == 4000
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    section = SamplingSection(temperature=5.0, top_p=1.0)
    flat = torch.zeros(tiny.VOCABULARY)
    assert len({Sampler(section).draw(flat, [], position) for position in range(100)}) > 50


def test_frequencies_follow_the_distribution():
    """Over many positions each token comes as often as its probability says."""
    logits = torch.full((tiny.VOCABULARY,), -torch.inf)
    logits[:3] = torch.tensor([0.5, 0.3, 0.2]).log()
    sampler = Sampler(SamplingSection(temperature=1.0, top_p=1.0))
    drawn = torch.tensor([sampler.draw(logits, [], position) for position in range(4000)])
    assert [float((drawn == i).float().mean()) for i in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
