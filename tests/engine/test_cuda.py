"""The same promises on a CUDA device: copies through the bounce buffer, and a turn that comes back exactly."""

from pathlib import Path

import pytest
import torch

from localkv.config import Config, EngineSection
from localkv.engine.slot import Slot
from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.paths import Home
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
    slot.save_block(1, back_block)
    slot.save_checkpoint(40, back_state)
    assert torch.equal(block, back_block)
    assert torch.equal(state, back_state)


def test_a_turn_on_the_device_comes_back_exactly(home: Home, starter_model: Path, engine_lock: None) -> None:
    """Leaving and coming back on a GPU gives the ids of never leaving, restored from RAM."""
    (home.models_dir / "starter").symlink_to(starter_model, target_is_directory=True)
    config = Config(engine=EngineSection(device="cuda", context_tokens=4096))
    with open_runtime(home, config=config) as runtime:
        stayed, left = Story("stayed"), Story("left")
        stayed.ask(runtime, TEXT * 35, 8)
        expected = ids_of(stayed.ask(runtime, "Go on.", 24))
        left.ask(runtime, TEXT * 35, 8)
        Story("other").ask(runtime, "Something else.", 4)
        done = left.ask(runtime, "Go on.", 24)
    assert ids_of(done) == expected
    assert done.numbers.restored.ram > 0
