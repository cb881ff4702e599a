"""Durable steps on files, each one call, so that tests can make any of them fail.

Knows nothing of records or databases. Thread: any; a Files holds no state. All steps raise OSError untranslated: the
caller knows what the file was for.

A file becomes durable in this order and no other: write_temp -> sync -> rename -> sync_dir. A new name without sync_dir
may be gone after a power cut; a rename before sync may leave a file of zero bytes under the final name [measured on ext4].
A failed sync is never retried on the same file: the kernel may have dropped the dirty pages and would report success.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

TEMP_SUFFIX = ".part"
"""Temporary files end in this; readers and scans never look at them."""

_F_FULLFSYNC = 51
"""macOS: fsync alone leaves data in the drive's own cache."""


class Files:
    """The real file system. Tests subclass it to record, fail or tear steps."""

    def write_temp(self, path: Path, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """Write `parts` one after the other to a new file of mode 0600; returns the bytes written. Not durable yet."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            written = 0
            for part in parts:
                view = memoryview(part).cast("B")
                while len(view):
                    n = self.write_some(fd, view)
                    view = view[n:]
                    written += n
            return written
        finally:
            os.close(fd)

    def write_some(self, fd: int, view: memoryview) -> int:
        """One write(2); may be short."""
        return os.write(fd, view)

    def sync(self, path: Path) -> None:
        """Force the bytes of `path` to the disk."""
        fd = os.open(path, os.O_RDWR)
        try:
            if sys.platform == "darwin":
                import fcntl

                fcntl.fcntl(fd, _F_FULLFSYNC)
            else:
                os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Give `source` its final name, in one step, in the same directory."""
        source.replace(target)

    def sync_dir(self, directory: Path) -> None:
        """Make the names in `directory` durable. A no-op on Windows, which has no such call."""
        if os.name == "nt":
            return
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_dir(self, directory: Path) -> None:
        """Make `directory` (0700) and what is missing above it."""
        for place in reversed((directory, *directory.parents)):  # mkdir would give parents the mode of the umask
            if not place.is_dir():
                place.mkdir(mode=0o700, exist_ok=True)

    def remove(self, path: Path) -> None:
        """Unlink `path`; it is no error if it is gone already."""
        path.unlink(missing_ok=True)

    def read_into(self, path: Path, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset`; returns the bytes read, fewer only at the end of the file. Releases the GIL."""
        return self.read_parts(path, [buffer], offset)

    def read_parts(self, path: Path, views: Sequence[memoryview], offset: int = 0) -> int:
        """Fill `views` one after the other from `offset`; returns the bytes read, fewer only at the end of the file.

        One system call as long as the kernel gives all that was asked for. Releases the GIL.
        """
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            rest = [view for view in views if len(view)]
            done = 0
            while rest:
                n = self.read_some(fd, rest, offset + done)
                if n == 0:
                    break
                done += n
                while rest and n >= len(rest[0]):
                    n -= len(rest.pop(0))
                if n:
                    rest[0] = rest[0][n:]
            return done
        finally:
            os.close(fd)

    def read_some(self, fd: int, views: Sequence[memoryview], offset: int) -> int:
        """One preadv(2) into `views`, none of them empty; may be short."""
        if hasattr(os, "preadv"):
            return os.preadv(fd, views, offset)
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, len(views[0]))
        views[0][: len(data)] = data
        return len(data)

    def list_dir(self, directory: Path) -> list[str]:
        """The names in `directory`, in no order."""
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]

    def modified(self, path: Path) -> float:
        """When the bytes of `path` were last written: seconds since the epoch, wall clock."""
        return path.stat().st_mtime

    def size(self, path: Path) -> int:
        """The length of `path` in bytes."""
        return path.stat().st_size

    def free_bytes(self, directory: Path) -> int:
        """Space left on the disk of `directory` for this user."""
        import shutil

        return shutil.disk_usage(directory).free


def replace_durably(files: Files, target: Path, data: bytes) -> None:
    """Write a small file so that after a crash either the old or the new content is there, whole."""
    temp = target.with_name(f".{target.name}.{os.getpid()}{TEMP_SUFFIX}")
    files.remove(temp)
    try:
        files.write_temp(temp, [data])
        files.sync(temp)
        files.rename(temp, target)
    except OSError:
        files.remove(temp)
        raise
    files.sync_dir(target.parent)
