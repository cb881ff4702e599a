"""Whether the store is what its catalogue says: every row against its file, every file against its own name and digests.

Reads and changes nothing, so an engine may run meanwhile: what looks wrong is asked for once more at the end, because the engine may have
removed or published it just then. Mending is done by whoever holds the lock of the store. Thread: any one; `check_file` alone does the
reading, so several files may be read at once.
"""

import contextlib
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from localkv.errors import BadRecord, StoreError
from localkv.files import TEMP_SUFFIX, Files
from localkv.kv.layout import Segment
from localkv.kv.record import MAX_HEADER_BYTES, Record, decode_header, describe, tensors_of
from localkv.tiers.catalogue import CATALOGUE, Row, read_rows, row_of
from localkv.tiers.publish import FILE_SUFFIX, record_path
from localkv.tiers.sweep import QUARANTINE, record_directories

READERS = 4
"""Files read at once: checksums release the GIL."""

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `path` is the file it is about, if it is about one."""

    kind: str
    """missing_file, checksum, short_read, read_error, identity_changed, row_differs, shapes, no_row, misplaced, temp_file, stray_file,
    permissions, catalogue or over_budget."""
    what: str
    identity: str = ""
    name: str = ""
    path: Path | None = None
    row: Row | None = None
    """For no_row and row_differs: the row that the good file should have."""
    excess: int = 0
    """For over_budget: so many bytes too much."""


@dataclass(slots=True)
class Audit:
    """What was looked at and what was found."""

    records: int = 0
    n_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Good:
    """A file whose name, ids, tensors and payload fit together."""

    row: Row
    tensors: tuple[Segment, ...]


def audit_store(
    root: Path,
    budget_bytes: int | None,
    progress: Callable[[int, int], None],
    *,
    files: Files | None = None,
    young_seconds: float = 0.0,
) -> Audit:
    """Look at everything below `root`; `budget_bytes` None: no budget is checked.

    Files younger than `young_seconds` may have no row: an engine may be publishing them.
    """
    files = files or Files()
    audit = Audit()
    if not root.is_dir():
        return audit
    rows, damage = _rows(root)
    audit.findings += damage
    found = _record_files(root, files)
    good = _check_files(found, files, audit, progress)
    audit.findings += [*_compare(root, rows, good, found), *_odd_shapes(root, good), *_strays(root, found)]
    again, _ = _rows(root)
    audit.findings = [finding for finding in audit.findings if _stands(finding, rows, again, young_seconds)]
    used = sum(_size(files, path) for path in root.rglob("*") if path.is_file())
    if budget_bytes is not None and used > budget_bytes:
        what = f"the store has {used:,} bytes and may have {budget_bytes:,}"
        audit.findings.append(Finding("over_budget", what, excess=used - budget_bytes))
    return audit


def check_file(path: Path, files: Files) -> Good:
    """The record in the file at `path`. Raises BadRecord if any byte of it is not as it was written, or its name is another's."""
    name = path.stem
    try:
        size = files.size(path)
        content = bytearray(size)
        n = files.read_into(path, 0, memoryview(content))
    except FileNotFoundError as error:
        raise BadRecord(name, "missing_file", "its file is gone") from error
    except OSError as error:
        raise BadRecord(name, "read_error", error.strerror or str(error)) from error
    length = int.from_bytes(content[:8], "little") + 8
    header, payload = bytes(content[:length]), memoryview(content)[length:]
    record = decode_header(header, name)
    tensors = tensors_of(header, name)
    if n != size or len(payload) != record.n_bytes:
        raise BadRecord(name, "short_read", f"{len(payload):,} of {record.n_bytes:,} payload bytes")
    made = describe(record.kind, record.parent, record.ids, record.position, record.fingerprint, payload)
    if made != record or record.name != name:
        raise BadRecord(name, "checksum", _difference(record, made, name))
    return Good(row_of(record, length, files.modified(path)), tensors)


def head_of(path: Path, files: Files) -> Record | None:
    """What the header of the file at `path` says, whatever its payload is; None if it cannot be read."""
    start = bytearray(8)
    try:
        files.read_into(path, 0, memoryview(start))
        header = bytearray(min(int.from_bytes(start, "little"), MAX_HEADER_BYTES) + len(start))
        files.read_into(path, 0, memoryview(header))
        return decode_header(bytes(header), path.stem)
    except (OSError, BadRecord):
        return None


def _difference(record: Record, made: Record, name: str) -> str:
    if record.check != made.check or record.digest != made.digest:
        return "the payload does not match its checksum"
    return f"the file of {name[:12]} describes the record {record.name[:12]}"


def _rows(root: Path) -> tuple[dict[tuple[str, str], Row], list[Finding]]:
    path = root / CATALOGUE
    try:
        return {(identity, row.name): row for identity, row in read_rows(path)}, []
    except StoreError as error:
        return {}, [Finding("catalogue", str(error), path=path)]


def _record_files(root: Path, files: Files) -> dict[tuple[str, str], Path]:
    found = {}
    for directory in record_directories(root, files):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in files.list_dir(directory):
                if name.endswith(FILE_SUFFIX):
                    found[directory.parent.name, name.removesuffix(FILE_SUFFIX)] = directory / name
    return found


def _check_files(
    found: dict[tuple[str, str], Path], files: Files, audit: Audit, progress: Callable[[int, int], None]
) -> dict[tuple[str, str], Good]:
    good: dict[tuple[str, str], Good] = {}

    def check(path: Path) -> Good | BadRecord:
        try:
            return check_file(path, files)
        except BadRecord as error:
            return error

    with ThreadPoolExecutor(READERS, thread_name_prefix="audit") as pool:
        for key, result in zip(found, pool.map(check, found.values()), strict=True):
            audit.records += 1
            if isinstance(result, Good):
                good[key] = result
                audit.n_bytes += result.row.file_bytes
            elif result.reason != "missing_file":
                audit.findings.append(Finding(result.reason, str(result), *key, path=found[key]))
            progress(audit.records, len(found))
    return good


def _compare(
    root: Path, rows: dict[tuple[str, str], Row], good: dict[tuple[str, str], Good], found: dict[tuple[str, str], Path]
) -> Iterator[Finding]:
    for key, row in rows.items():
        path = record_path(root, *key)
        if key not in found:
            yield Finding("missing_file", f"record {row.name[:12]} has a row and no file", *key, path=path)
        elif found[key] != path:
            yield Finding("misplaced", f"{found[key]} lies in the wrong directory", *key, path=found[key])
        elif key in good and _facts(good[key].row) != _facts(row):
            yield Finding(
                "row_differs", f"the row of record {row.name[:12]} is not what its file says", *key, path, good[key].row
            )
    for key, each in good.items():
        if key not in rows:
            yield Finding("no_row", f"the good file of record {key[1][:12]} has no row", *key, found[key], each.row)


def _facts(row: Row) -> tuple[object, ...]:
    return (
        row.name, row.kind, row.parent, row.lookup, row.position, row.fingerprint, row.n_bytes, row.digest, row.check,
        row.header_bytes,
    )  # fmt: skip


def _odd_shapes(root: Path, good: dict[tuple[str, str], Good]) -> Iterator[Finding]:
    """All blocks of a model have the same tensors, and all its checkpoints at one position."""
    groups: dict[tuple[str, str, int], dict[tuple[str, str], tuple[tuple[str, str, tuple[int, ...]], ...]]] = {}
    for (identity, name), each in good.items():
        position = each.row.position if each.row.kind == "checkpoint" else 0
        shape = tuple((tensor.name, tensor.dtype, tensor.shape) for tensor in each.tensors)
        groups.setdefault((identity, each.row.kind, position), {})[identity, name] = shape
    for group in groups.values():
        usual = Counter(group.values()).most_common(1)[0][0]
        for (identity, name), shape in group.items():
            if shape != usual:
                what = f"record {name[:12]} has other tensors than the other records of its model"
                yield Finding("shapes", what, identity, name, path=record_path(root, identity, name))


def _strays(root: Path, found: dict[tuple[str, str], Path]) -> Iterator[Finding]:
    known = set(found.values())
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root).parts
        if inside[0] == QUARANTINE or inside[-1].startswith("."):
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.name != "nt" and path.stat().st_mode & OTHERS:
                yield Finding("permissions", f"others may read {path}", path=path)
            fresh = len(inside) == 3 and path.name.endswith(FILE_SUFFIX)  # published since the record files were listed
            if path.is_dir() or path in known or fresh or (len(inside) == 1 and inside[0].startswith(Path(CATALOGUE).stem)):
                continue
            kind = "temp_file" if path.name.endswith(TEMP_SUFFIX) else "stray_file"
            yield Finding(kind, f"{path} belongs to no record", path=path)


def _stands(
    finding: Finding, before: dict[tuple[str, str], Row], after: dict[tuple[str, str], Row], young_seconds: float
) -> bool:
    """Whether it is still so: what an engine removed or published meanwhile is as it should be."""
    key = (finding.identity, finding.name)
    if finding.kind in {"no_row", "temp_file", "stray_file"}:
        return key not in after and finding.path is not None and _is_old(finding.path, young_seconds)
    return key not in before or key in after


def _is_old(path: Path, seconds: float) -> bool:
    """False for a file that is gone. A time in the future counts by its distance: the clock may have been set back."""
    try:
        return abs(time.time() - path.stat().st_mtime) >= seconds
    except FileNotFoundError:
        return False


def _size(files: Files, path: Path) -> int:
    try:
        return files.size(path)
    except OSError:
        return 0
