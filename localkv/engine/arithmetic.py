"""What computes here: the builds and instructions that decide the last bits of a forward, as words of the fingerprint.

Imports torch; knows no model. A record that was made with other words is used and said to be "not exact", and a self-test that passed
with others is run again: an optional package that transformers takes up by itself may swap the whole path of a recurrent layer.
"""

import importlib.metadata

import torch

ARITHMETIC = 1
"""Of localkv's own path: the attention, the linear layers, the slot, the edges of chunks. Raised with every change of bits."""

PACKAGES = ("bitsandbytes", "causal-conv1d", "flash-attn", "flash-linear-attention", "kernels", "mamba-ssm", "transformers")
"""Distributions whose kernels a model runs on if they are installed."""


def words(device: torch.device) -> dict[str, str]:
    """By name; the device is named by its kind and model, not by which of several alike it is."""
    cuda = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "packages": " ".join(f"{name}={_version(name)}" for name in PACKAGES),
        "device": device_name(device),
        "instructions": f"CUDA {torch.version.cuda}" if cuda else instructions(),
        "localkv": str(ARITHMETIC),
    }


def device_name(device: torch.device) -> str:
    """The card's name, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def instructions() -> str:
    """What the processor can do: one without bf16 instructions rounds elsewhere than one that has them."""
    able = sorted(name for name, has in torch.cpu.get_capabilities().items() if has is True)
    return " ".join([torch.backends.cpu.get_cpu_capability(), *able])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"
