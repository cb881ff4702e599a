"""The order by which records become durable and go, proven from the marks of the processes that did it.

    write a temporary file -> sync it -> rename it -> sync its directory -> commit its row      (tiers/publish)
    commit that its row is gone -> unlink                                                       (tiers/disk)

kill -9 leaves what was written in the system's memory, so the state of the disk does not show a missing sync: only a power cut would. The
order of the calls shows it at once. Pure; marks of steps that have ended are believed, a step that had only begun counts as not done.
"""

from collections import defaultdict
from pathlib import PurePath

from localkv.commands.drill.marks import Mark
from localkv.files import TEMP_SUFFIX
from localkv.tiers.publish import FILE_SUFFIX


class Law:
    """What is known of every file and row so far. Feed it all marks in their order."""

    def __init__(self) -> None:
        self._synced: set[str] = set()
        """Files whose bytes are on the disk."""
        self._unsynced_names: dict[str, set[str]] = defaultdict(set)
        """Directory -> files in it whose names are not on the disk yet."""
        self._final: dict[str, str] = {}
        """Record -> its file, once that has its final name."""
        self._rows: set[str] = set()
        """Records that have a row, as far as was seen."""

    def feed(self, mark: Mark) -> list[str]:
        """What is wrong with this step, in sentences."""
        match mark.what:
            case "written":
                return self._written(mark.path)
            case "synced":
                self._synced.add(mark.path)
            case "renamed":
                return self._renamed(mark.path, mark.target)
            case "made_dir" | "dir_synced":
                self._directory(mark)
            case "commit":
                self._rows -= set(mark.gone)  # from here on it may be gone; whether it is, only "committed" says
                return [breach for name in mark.names for breach in self._committed(name)]
            case "committed":
                self._rows |= set(mark.names)
            case "removing":
                return self._removed(mark.path)
        return []

    def _written(self, path: str) -> list[str]:
        self._synced.discard(path)
        if path.endswith(TEMP_SUFFIX):
            return []
        return [f"{_short(path)} was written in place: a crash leaves it torn under its final name"]

    def _renamed(self, source: str, target: str) -> list[str]:
        name = PurePath(target).name.removesuffix(FILE_SUFFIX)
        if not source.endswith(TEMP_SUFFIX):
            return []  # into quarantine
        self._final[name] = target
        self._unsynced_names[str(PurePath(target).parent)].add(target)
        if source in self._synced:
            self._synced.add(target)
            return []
        return [f"{_short(target)} got its final name before its bytes were on the disk"]

    def _directory(self, mark: Mark) -> None:
        if mark.what == "made_dir":
            self._unsynced_names[str(PurePath(mark.path).parent)].add(mark.path)
        else:
            self._unsynced_names.pop(mark.path, None)

    def _committed(self, name: str) -> list[str]:
        path = self._final.get(name)
        if path is None:
            return [f"record {name[:12]} got its row before its file"]
        breaches = []
        if path not in self._synced:
            breaches.append(f"record {name[:12]} got its row before its bytes were on the disk")
        directory = PurePath(path).parent
        for place, named in ((directory, path), (directory.parent, str(directory))):
            if named in self._unsynced_names[str(place)]:
                breaches.append(f"record {name[:12]} got its row before the name of {_short(named)} was on the disk")
        return breaches

    def _removed(self, path: str) -> list[str]:
        name = PurePath(path).name.removesuffix(FILE_SUFFIX)
        self._synced.discard(path)
        self._final.pop(name, None)
        if name in self._rows:
            return [f"the file of record {name[:12]} was removed while it had a row"]
        return []


def _short(path: str) -> str:
    pure = PurePath(path)
    return f"{pure.parent.name}/{pure.name[:12]}"
