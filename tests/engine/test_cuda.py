"""The same promises on a CUDA device: copies on streams of their own, and turns that come back exactly."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from localkv.config import Config, EngineSection, MemorySection
from localkv.engine.cuda import Pinner
from localkv.engine.slot import Slot
from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.paths import Home
from localkv.tiers.host import HostPool
from tests.engine.test_late import LAYOUT as LATE_LAYOUT
from tests.engine.test_late import N_BLOCKS, busy_life, direct_slot, life
from tests.talk import TEXT, Story, ids_of, open_runtime

pytestmark = pytest.mark.gpu

ROWS = Rows(2, 8, "BF16")
LAYOUT = Layout(
    (Layer(0, ROWS, ROWS), Layer(1, ROWS, ROWS, 24), Layer(2, None, None, None, (State("conv0", (4, 3), "F32"),))), 16
)


def test_records_cross_the_bus_unchanged() -> None:
    """A block and a checkpoint copied to the device and back are the same bytes."""
    slot = Slot(LAYOUT, 128, torch.device("cuda"))
    block = torch.randint(0, 255, (LAYOUT.block_bytes,), dtype=torch.uint8)
    state = torch.randint(0, 255, (LAYOUT.checkpoint_bytes(40),), dtype=torch.uint8)
    slot.load_block(1, block)
    slot.load_checkpoint(40, state)
    back_block, back_state = torch.zeros_like(block), torch.zeros_like(state)
    slot.save_block(1, back_block).wait()
    slot.save_checkpoint(40, back_state).wait()
    assert torch.equal(block, back_block)
    assert torch.equal(state, back_state)


@pytest.mark.parametrize("a_life", [life, busy_life])
def test_many_copies_at_once_change_no_byte(a_life: Callable[[Slot, int], list[bytes]]) -> None:
    """What the simulated device is put through, on the real one: the host reads what it would have read without streams."""
    for seed in range(20):
        on_device = Slot(LATE_LAYOUT, N_BLOCKS * LATE_LAYOUT.block_tokens, torch.device("cuda"))
        on_device.load_checkpoint(40, torch.arange(LATE_LAYOUT.checkpoint_bytes(40)).to(torch.uint8)).wait()
        assert a_life(on_device, seed) == a_life(direct_slot(), seed)


def test_pinned_memory_is_given_back() -> None:
    """Arenas are registered and taken back; a refusal leaves no error for the next kernel, and the memory can be used all the same."""
    device, told = torch.device("cuda"), list[str]()
    pool = HostPool(1 << 20, 4096, 64 << 20, Pinner(device), refusal=told.append)
    place = pool.reserve("block", 1 << 20)
    assert place is not None
    assert told or torch.frombuffer(place.memory, dtype=torch.uint8).is_pinned()
    assert Pinner(device).pin(1 << 46, 4096), "that address is nobody's"
    assert int(torch.ones(3, device=device).sum()) == 3
    place.view(4)[:] = b"kept"
    pool.close()
    assert pool.pinned_bytes == 0
    assert bytes(place.view(4)) == b"kept"


@pytest.mark.parametrize(("vram_pool", "tier"), [("auto", "vram"), ("0", "ram")])
def test_a_turn_on_the_device_comes_back_exactly(
    home: Home, starter_model: Path, engine_lock: None, vram_pool: str, tier: str
) -> None:
    """Leaving and coming back on a GPU gives the ids of never leaving, from the pool on the device or from RAM."""
    (home.models_dir / "starter").symlink_to(starter_model, target_is_directory=True)
    engine = EngineSection(device="cuda", context_tokens=4096)
    config = Config(engine=engine, memory=MemorySection(vram_pool=vram_pool))
    with open_runtime(home, config=config) as runtime:
        stayed, left = Story("stayed"), Story("left")
        stayed.ask(runtime, TEXT * 35, 8)
        expected = ids_of(stayed.ask(runtime, "Go on.", 24))
        left.ask(runtime, TEXT * 35, 8)
        Story("other").ask(runtime, "Something else.", 4)
        done = left.ask(runtime, "Go on.", 24)
    assert ids_of(done) == expected
    assert getattr(done.numbers.restored, tier) == done.numbers.restored.total > 0
