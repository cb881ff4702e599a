"""The scratch home of a rehearsal: its settings, its conversations as they stand in the file, and what is done to it between two lives.

Torch-free. Thread: main. Reads the conversations without the store that the faces use: what that store would mend must be seen unmended.
"""

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

import localkv
from localkv.chat import rows
from localkv.chat.migrations import MIGRATIONS, migrate
from localkv.chat.tree import Message
from localkv.commands.drill.marks import FOLDER
from localkv.commands.drill.sabotage import VARIABLE, Sabotage
from localkv.commands.drill.script import MAX_TOKENS
from localkv.errors import EngineUnavailable
from localkv.paths import PRIVATE_FILE, Home, private_dir
from localkv.tiers.publish import FILE_SUFFIX
from localkv.units import parse_bytes

RAM, SSD = "4 MiB", "12 MiB"
"""Small enough that a few questions fill both."""

SETTINGS = """\
[model]
name = {model}
[engine]
device = "cpu"
threads = 1
block_tokens = 32
[memory]
ram_pool = "{ram}"
ssd_store = "{ssd}"
ssd_free_floor = "0 B"
[sampling]
temperature = 0.0
max_tokens = {max_tokens}
"""

_BUSY_SECONDS = 10.0


class World:
    """One home below `base` that no other program knows. `drilled`: its processes write marks."""

    def __init__(self, base: Path, model: Path, *, drilled: bool, sabotage: Sabotage | None = None) -> None:
        self.base = base
        self.home = Home(base / "config", base / "data", base / "cache", base / "models")
        self.marks = base / "marks"
        self.drilled = drilled
        self.sabotage = sabotage
        self.flipped: dict[Path, int] = {}
        """Record files with a flipped byte, and their inodes: a file that is written anew is another one."""
        self.home.prepare()
        private_dir(self.marks)
        settings = SETTINGS.format(model=json.dumps(str(model)), ram=RAM, ssd=SSD, max_tokens=MAX_TOKENS)
        self.home.config_file.write_text(settings, encoding="utf-8")
        self.home.config_file.chmod(PRIVATE_FILE)

    @property
    def budget_bytes(self) -> int:
        """What the store may take."""
        return parse_bytes(SSD)

    @property
    def environment(self) -> dict[str, str]:
        """For its processes."""
        environment = os.environ | {"LOCALKV_HOME": str(self.base), "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1"}
        if self.drilled:
            environment |= {FOLDER: str(self.marks), VARIABLE: self.sabotage or ""}
        return environment

    def processes(self) -> list[psutil.Process]:
        """The engines that serve this home: it stands on their command lines."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and any(str(self.base) in word for word in process.cmdline()):
                    found.append(process)
        return found

    def end_all(self) -> None:
        """Kill every engine of this home, also one that is only starting, and wait for their end."""
        while found := self.processes():
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=1.0)

    # ---- the conversations ----

    def messages(self) -> dict[str, Message]:
        """All messages, by id."""
        if not self.home.database.exists():
            return {}
        with _reading(self.home.database) as db:
            found = [rows.to_message(row) for row in db.execute(rows.SELECT_MESSAGES + "ORDER BY seq")]
        return {message.id: message for message in found}

    def path(self, name: str) -> list[Message] | None:
        """The messages of the conversation `name` down to the one that its person looks at; None if it is not there."""
        if not self.home.database.exists():
            return None
        with _reading(self.home.database) as db:
            row = db.execute("SELECT id, leaf FROM conversations WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            query = rows.SELECT_MESSAGES + "WHERE conversation = ?"
            known = {message.id: message for message in map(rows.to_message, db.execute(query, row[:1]))}
        path, at = [], row[1]
        while at is not None:
            path.append(known[at])
            at = path[-1].parent
        return path[::-1]

    def make_older(self) -> None:
        """Give the conversations the schema of the first release; nobody may have them open. All messages stay."""
        target = self.base / "older.db"
        target.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as db:
            migrate(db, target, self.home.backups, MIGRATIONS[:1])
            db.execute("ATTACH ? AS newer", (str(self.home.database),))
            db.execute("BEGIN")
            for table in ("conversations", "messages"):
                columns = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
                db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")  # noqa: S608
            db.execute("COMMIT")
        target.chmod(PRIVATE_FILE)
        for suffix in ("-wal", "-shm"):
            Path(f"{self.home.database}{suffix}").unlink(missing_ok=True)
        target.replace(self.home.database)

    # ---- the store ----

    def record_files(self) -> list[Path]:
        """All record files."""
        return sorted(self.home.store.glob(f"*/*/*{FILE_SUFFIX}"))

    def forget_proofs(self) -> None:
        """The next start has to read and to prove its model again, and to write down what it found."""
        self.home.digests.unlink(missing_ok=True)
        self.home.selftests.unlink(missing_ok=True)

    def flip(self, name: str, rng: random.Random) -> bool:
        """Change one byte of the record `name`, anywhere in its file; False if it has none."""
        file = next(self.home.store.glob(f"*/*/{name}{FILE_SUFFIX}"), None)
        if file is None:
            return False
        with file.open("r+b") as stream:
            at = rng.randrange(file.stat().st_size)
            stream.seek(at)
            byte = stream.read(1)[0]
            stream.seek(at)
            stream.write(bytes([byte ^ rng.randint(1, 255)]))
        self.flipped[file] = file.stat().st_ino
        return True

    def is_flipped(self, file: Path | None) -> bool:
        """Whether this very file was spoilt here."""
        try:
            return file is not None and self.flipped.get(file) == file.stat().st_ino
        except FileNotFoundError:
            return False


def make_model(folder: Path) -> None:
    """The model that answers, in `folder`; its maker is a process of its own. Raises EngineUnavailable."""
    command = [sys.executable, "-P", "-m", "localkv.commands.drill.model", str(folder)]
    made = subprocess.run(command, env=os.environ | {"PYTHONPATH": python_path()}, capture_output=True, text=True, check=False)
    if made.returncode:
        raise EngineUnavailable(f"the model of the rehearsal cannot be made: {made.stderr[-2000:]}; see localkv doctor")


def python_path() -> str:
    """PYTHONPATH with which other processes find this very package."""
    return os.pathsep.join(filter(None, (str(Path(localkv.__file__).parent.parent), os.environ.get("PYTHONPATH"))))


@contextlib.contextmanager
def _reading(database: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{database.absolute().as_uri()}?mode=rw"  # a log that a kill left must be read too, and that takes write access
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as db:
        db.execute("PRAGMA query_only = 1")
        db.execute("BEGIN")
        yield db
