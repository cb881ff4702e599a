"""What this machine is, found without torch: platform and what follows from it, memory, disk, budgets, library versions.

Works while torch, the engine or the configuration are broken: that is when people run `doctor`. Reads /proc, /sys and
package metadata; changes nothing. Thread: main.
"""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from localkv import __version__
from localkv.config import MemorySection
from localkv.paths import Home
from localkv.tiers.host import available_memory, ram_budget
from localkv.units import format_bytes, parse_bytes

Section = dict[str, str | int | float | bool | None]

GIB = 1 << 30
CARD_SECONDS = 5.0
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "bitsandbytes", "huggingface-hub", "textual")

CLASSES = {
    "linux-cuda": "Linux with an NVIDIA GPU: everything works; caches move between GPU memory, RAM and SSD",
    "linux-cpu": "Linux without an NVIDIA GPU: everything works on the CPU; caches move between RAM and SSD",
    "linux-rocm": 'Linux with an AMD GPU: experimental; if a model misbehaves, set engine.device to "cpu"',
    "wsl": "Windows Subsystem for Linux: everything works; pinned memory is limited by Windows, so moving caches may be slower",
    "macos": 'macOS: everything works on the CPU; engine.device = "mps" is experimental',
    "windows": "Windows without WSL: best effort; WSL is the supported way",
    "other": "this platform is not one that localkv is tried on; the CPU path may work",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides the platform class."""

    system: str
    release: str
    nvidia: bool
    rocm: bool
    torch: str
    """The installed version with its build, such as 2.13.0+cpu; empty if there is none."""


def find_facts(root: Path = Path("/")) -> Facts:
    """The Facts of this machine; files are looked for below `root`."""
    torch = library_version("torch") or ""
    nvidia = (
        (root / "proc/driver/nvidia/version").exists() or (root / "dev/dxg").exists() or shutil.which("nvidia-smi") is not None
    )
    return Facts(platform.system(), platform.release(), nvidia, (root / "dev/kfd").exists() or "rocm" in torch, torch)


def classify(facts: Facts) -> str:
    """The key in CLASSES of a machine."""
    if facts.system == "Linux" and "microsoft" in facts.release.lower():
        return "wsl"
    if facts.system == "Linux":
        return "linux-cuda" if facts.nvidia else "linux-rocm" if facts.rocm else "linux-cpu"
    return {"Darwin": "macos", "Windows": "windows"}.get(facts.system, "other")


def advice(facts: Facts) -> str:
    """What does not fit together on this machine and how to mend it; empty if all fits."""
    if not facts.torch:
        return "torch is not installed, so no model can run; install localkv again"
    if facts.nvidia and "+cpu" in facts.torch:
        return "there is an NVIDIA driver, but this torch is a CPU build; install torch from pypi.org to use the GPU"
    return ""


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card that models can run on."""

    name: str
    memory: int
    """Bytes."""


def find_cards(facts: Facts) -> tuple[Card, ...]:
    """The NVIDIA cards, as the driver's own program lists them; none where it does not answer. Takes up to a second."""
    if not facts.nvidia:
        return ()
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=CARD_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # doctor asks torch, too, and says what is wrong
    return read_cards(said.stdout)


def read_cards(listed: str) -> tuple[Card, ...]:
    """The cards in a list of names and mebibytes, one on each line."""
    found = (line.rpartition(",") for line in listed.splitlines())
    return tuple(Card(name.strip(), int(memory) << 20) for name, _, memory in found if memory.strip().isdecimal())


def machine_section(facts: Facts) -> Section:
    """The platform, processors and memory."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "platform": f"{facts.system} {facts.release} {platform.machine()}",
        "class": classify(facts),
        "which means": CLASSES[classify(facts)],
        "to mend": advice(facts) or None,
        "python": f"{platform.python_version()} ({sys.executable})",
        "cores": f"{psutil.cpu_count(logical=False) or '?'} physical, {usable_cpus()} usable threads",
        "memory": f"{format_bytes(memory.total)}, {format_bytes(available_memory())} available",
    }


def library_section() -> Section:
    """Versions of what is installed; None for what is not."""
    return {"localkv": __version__, **{name: library_version(name) for name in LIBRARIES}}


def library_version(name: str) -> str | None:
    """The installed version of a package, from its metadata: does not import it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def disk_section(home: Home) -> Section:
    """Free space where localkv writes, and what it has written."""
    section: Section = {}
    for name, directory in (("conversations", home.data_dir), ("cache", home.cache_dir), ("models", home.models_dir)):
        usage = shutil.disk_usage(existing(directory))
        section[name] = f"{directory}: {format_bytes(usage.free)} of {format_bytes(usage.total)} free"
    section["cache holds"] = format_bytes(folder_bytes(home.cache_dir))
    return section


def budget_section(memory: MemorySection, home: Home) -> Section:
    """What each tier may take, as the settings and this machine give it."""
    usage = shutil.disk_usage(existing(home.cache_dir))
    stored = folder_bytes(home.store)
    ssd = ssd_default(usage.total, usage.free, stored) if memory.ssd_store == "auto" else parse_bytes(memory.ssd_store)
    return {
        "ram_pool": f"{format_bytes(ram_budget(memory.ram_pool))} ({memory.ram_pool})",
        "ssd_store": f"{format_bytes(ssd)} ({memory.ssd_store})",
        "ssd_free_floor": memory.ssd_free_floor,
        "vram_pool": f"{memory.vram_pool} (of what the weights leave; none without a GPU)",
        "vram_margin": memory.vram_margin,
    }


def ssd_default(total: int, free: int, stored: int) -> int:
    """The budget on SSD that "auto" stands for; what is stored already counts as free."""
    return max(0, min(20 * GIB, total // 10, free + stored - 10 * GIB))


def usable_cpus() -> int:
    """CPU threads that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def existing(directory: Path) -> Path:
    """`directory`, or the nearest folder above it that exists."""
    return next((folder for folder in (directory, *directory.parents) if folder.is_dir()), Path(directory.anchor or "."))


def folder_bytes(folder: Path) -> int:
    """Bytes in all files below `folder`; files that vanish meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118  # thousands of records: Path costs
            except FileNotFoundError:
                continue
    return total
