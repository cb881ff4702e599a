"""The model of a rehearsal: `python -m localkv.commands.drill.model FOLDER` writes a small random one there. Imports torch.

A process of its own, because faces never import torch. 4 KiB of cache per token: a few questions fill the store of a rehearsal.
"""

import sys
from pathlib import Path

from localkv.commands.bench.tiny import make_model


def main() -> None:
    """Write the model."""
    make_model("llama", Path(sys.argv[1]), hidden_size=128, num_key_value_heads=4)


if __name__ == "__main__":
    main()
