"""Memory that runs out in a forward: the turn goes on, or ends in a sentence; no answer is wrong and no engine lost."""

import contextlib
import weakref

import msgspec
import pytest
import torch

from localkv.engine.shortage import is_shortage
from localkv.engine.thrift import LEAST_TOKENS
from localkv.errors import OutOfMemory
from localkv.opened import Opened
from localkv.service.work import leaves_process_unusable
from tests.engine.tiny_engine import CONFIG, ask, make, runtime_of

pytestmark = pytest.mark.slow

KINDS = ["llama", "gemma3_text", "qwen3_next", "jamba", "mamba2"]
"""Full attention; sliding windows; recurrent states; token by token; states without blocks."""

QUESTION = (
    "the first question of this conversation is somewhat longer than two blocks of tokens are, so that it is read in chunks"
)

CONFIG_64 = msgspec.structs.replace(CONFIG, engine=msgspec.structs.replace(CONFIG.engine, block_tokens=64))


class Short:
    """A model that finds no memory, half way through its layers, whenever `when(tokens)` says so. Counts forwards."""

    def __init__(self, runtime, when, error=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")):
        self.model, self.when, self.error = runtime.opened.loaded.model, when, error
        self.n_forwards = self.n_failed = 0
        layers = next(module for name, module in self.model.named_modules() if name.endswith("layers"))
        self.hooks = [
            self.model.register_forward_pre_hook(self._begin, with_kwargs=True),
            layers[len(layers) // 2].register_forward_pre_hook(self._midway),
        ]

    def _begin(self, _module, arguments, named):
        self.n_forwards += 1
        self.n_tokens = (arguments[0] if arguments else named["input_ids"]).shape[1]

    def _midway(self, *_):
        if self.when(self):
            self.n_failed += 1
            raise self.error

    def end(self):
        for hook in self.hooks:
            hook.remove()


@contextlib.contextmanager
def short(runtime, when, **how):
    lack = Short(runtime, when, **how)
    try:
        yield lack
    finally:
        lack.end()


@pytest.fixture(scope="module", params=KINDS)
def engine(request, fast_module_dir):
    """A runtime, and the two answers that it gives with memory to spare."""
    base = fast_module_dir / request.param
    with runtime_of(make(request.param, base / "model"), base / "home") as runtime:
        yield runtime, talk(runtime, "quiet")


def talk(runtime, name):
    first, lines = ask(runtime, QUESTION, name=name, n_tokens=6)
    second, _ = ask(runtime, "and then?", lines=lines, head=first.head, name=name, n_tokens=3)
    return first, second


def fresh(runtime):
    """Nothing is left of other tests: no record, no state."""
    runtime.opened.live.reset()
    keeper = runtime.opened.keeper
    keeper.flush(20)
    names = [(keeper.ground.identity, name) for name in keeper._index.entries]
    keeper.forget([], names, 20)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    ),
    MemoryError(),
]


def test_one_failure_anywhere_changes_no_answer(engine):
    """Any single forward of two turns may fail half way, in whatever words: what can be freed is freed, and the same ids come out."""
    runtime, (first, second) = engine
    k = 0
    while True:
        k += 1
        fresh(runtime)
        with short(runtime, lambda lack: lack.n_forwards == k, error=ERRORS[k % len(ERRORS)]) as lack:
            one, two = talk(runtime, f"talk {k}")
        if not lack.n_failed:
            break
        assert (one.ids, two.ids) == (first.ids, second.ids), f"forward {k}"
        if runtime.opened.ground.layout.only_full:
            assert one.numbers.exact == first.numbers.exact, "the same chunk was read again: the same bits"
    assert k > 10


@pytest.mark.parametrize("last", [False, True], ids=["half way", "after the layers"])
def test_what_nobody_foresaw_in_a_forward_leaves_nothing_to_go_on_from(engine, last):
    """A forward may fail with any error: layers then stand at different tokens, or all beyond what was said; the next turn knows neither."""
    runtime, (first, second) = engine
    model = runtime.opened.loaded.model
    for k in (1, 2, 3, 5, 8):
        fresh(runtime)
        error = RuntimeError("could not create a primitive")
        with short(runtime, lambda lack, k=k: lack.n_forwards == k and not last, error=error) as lack:
            hook = model.register_forward_hook(
                lambda *_, k=k, lack=lack: fail(lack, error) if last and lack.n_forwards == k else None
            )
            with pytest.raises(RuntimeError, match="primitive"):
                talk(runtime, f"talk {k}")
            hook.remove()
        one, two = talk(runtime, f"talk {k}")
        assert lack.n_failed
        assert (one.ids, two.ids) == (first.ids, second.ids), f"forward {k}"
        assert (one.head.name, two.head.name) == (first.head.name, second.head.name), "the same bytes"
        runtime.opened.keeper.check()


def fail(lack, error):
    lack.n_failed += 1
    raise error


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_a_failure_while_copies_are_under_way_changes_no_answer(kind, fast_dir):
    """With a pool on the device and copies that land late: records that were leaving when the forward failed are whole."""
    engine = msgspec.structs.replace(CONFIG.engine, simulate="late")
    late = msgspec.structs.replace(CONFIG, engine=engine)
    with runtime_of(make(kind, fast_dir / "model"), fast_dir / "home", late) as runtime:
        first, second = talk(runtime, "quiet")
        for k in (2, 3, 5, 8, 11):
            fresh(runtime)
            with short(runtime, lambda lack, k=k: lack.n_forwards == k):
                one, two = talk(runtime, f"late {k}")
            assert (one.ids, two.ids) == (first.ids, second.ids), f"forward {k}"
            runtime.opened.keeper.check()


def test_what_a_failed_forward_held_can_be_used_while_others_are_asked_to_give_back(tmp_path, monkeypatch):
    """An error keeps the frames that it came through; tensors of the failed forward must be free before the next try."""
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home") as runtime:
        held, alive = [], []

        def fail_once(*_):
            if not held:
                activations = torch.zeros(1000)
                held.append(weakref.ref(activations))
                raise torch.OutOfMemoryError("CUDA out of memory.")

        relieve = Opened.relieve
        monkeypatch.setattr(Opened, "relieve", lambda opened: alive.append(held[0]() is not None) or relieve(opened))
        hook = runtime.opened.loaded.model.register_forward_pre_hook(fail_once)
        ask(runtime, QUESTION, n_tokens=2)
        hook.remove()
    assert alive == [False]


def test_a_lack_that_lasts_halves_the_chunks(tmp_path):
    """Chunks that are too long for memory are read in pieces, and the turn is marked not exact with the reason."""
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home", CONFIG_64) as runtime:
        first, _ = talk(runtime, "quiet")
        fresh(runtime)
        with short(runtime, lambda lack: lack.n_tokens > 20) as lack:
            done, _ = ask(runtime, QUESTION, name="short", n_tokens=6)
        assert lack.n_failed > 0
        assert done.ids == first.ids
        assert not done.numbers.exact
        assert done.numbers.inexact_because == f"memory ran out: read in pieces of at most {LEAST_TOKENS} tokens"
        assert [event for event in runtime._events.recent if event.kind == "memory.relief"]
        fresh(runtime)
        healthy, _ = ask(runtime, QUESTION, name="after", n_tokens=6)
        assert healthy.ids == first.ids
        assert healthy.numbers.exact


def test_what_is_freed_each_time_in_vain_ends_in_shorter_pieces(tmp_path, monkeypatch):
    """Allocators count what the failed forward held as freed: that it is freed again and again is no reason to try the same again."""
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home", CONFIG_64) as runtime:
        first, _ = talk(runtime, "quiet")
        fresh(runtime)
        monkeypatch.setattr(Opened, "relieve", lambda _: 1 << 20)
        with short(runtime, lambda lack: lack.n_tokens > 20):
            done, _ = ask(runtime, QUESTION, name="short", n_tokens=6)
        assert done.ids == first.ids
        assert done.numbers.inexact_because == f"memory ran out: read in pieces of at most {LEAST_TOKENS} tokens"


def test_a_turn_that_fails_takes_along_what_it_could_not_say(tmp_path):
    """What was read in shorter pieces before memory ran out for good is not gone on from as if it were exact."""
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home", CONFIG_64) as runtime:
        ask(runtime, "hello", name="other", n_tokens=2)
        with short(runtime, lambda lack: lack.n_tokens > 20 or lack.n_forwards > 8), pytest.raises(OutOfMemory):
            ask(runtime, QUESTION, name="short", n_tokens=6)
        assert runtime.opened.live.position == 0
        again, _ = ask(runtime, QUESTION, name="short", n_tokens=6)
        assert again.numbers.restored.slot == 0


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_lack_without_end_is_a_sentence_and_the_next_turn_works(engine, after):
    """From some forward on none finds memory: the turn fails with what to do; later the conversation goes on as if nothing was."""
    runtime, (first, second) = engine
    fresh(runtime)
    with short(runtime, lambda lack: lack.n_forwards >= after), pytest.raises(OutOfMemory, match="what was said is kept"):
        ask(runtime, QUESTION, name="ends", n_tokens=6)
    one, two = talk(runtime, "ends")
    assert (one.ids, two.ids) == (first.ids, second.ids)
    runtime.opened.keeper.check()


def test_what_counts_as_a_shortage():
    """What allocators say, and nothing that merely mentions memory: after an illegal access nothing can be trusted."""
    assert is_shortage(torch.OutOfMemoryError("CUDA out of memory."))
    assert is_shortage(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert is_shortage(MemoryError())
    handle = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    assert is_shortage(handle)
    assert not leaves_process_unusable(handle)
    for error in (
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("shape"),
        ValueError("out of memory"),
    ):
        assert not is_shortage(error)
    assert leaves_process_unusable(RuntimeError("CUDA error: out of memory")), "the device failed outside an allocation"
