"""What is known of a device's memory."""

import torch

from localkv.engine.memory import card_of
from localkv.figures import Card


def test_a_card_tells_what_all_programs_have_taken(monkeypatch):
    """Total and used, of which the driver gives total and free; of a CPU nothing is claimed."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 30, 24 << 30))
    assert card_of(torch.device("cuda")) == Card(total_bytes=24 << 30, used_bytes=21 << 30)
    assert card_of(torch.device("cpu")) == Card()
