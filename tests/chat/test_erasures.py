"""What was erased leaves every file, whoever is in the way: others at work, other programs that read, a process that is killed."""

import contextlib
import hashlib
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localkv.chat import erasures
from localkv.chat.database import Database
from localkv.chat.erasures import STILL_READ, Erasures
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, NotWritable

SECRETS = (b"swordfish", b"dfish", b"zanzi", b"zibar", b"sesam")


def opened(folder, **options):
    return ConversationStore.open(folder / "conversations.db", folder / "backups", **options)


@pytest.fixture
def store(tmp_path):
    found = opened(tmp_path)
    yield found
    found.close()


def talk(store, name, *texts, system=""):
    key = store.create(name, model=ModelSection(), sampling=SamplingSection(), system=system).id
    for text in texts:
        store.ask(key, None, text)
    return key


def furnish(store):
    """Conversations with much in common, one of them secret: its id."""
    for n in range(6):
        talk(store, f"talk {n}", *(f"harmless words {n} {m}{many_words(n, m)}" for m in range(20)))
    secret = talk(store, "secret", "the password is swordfish", "and zanzibar", system="open sesame")
    talk(store, "late", *(f"later words {m}" for m in range(20)))
    return secret


def many_words(n, m):
    """Words that no other message has: the index becomes several pages."""
    return "".join(f" {hashlib.sha256(bytes([n, m, k])).hexdigest()}" for k in range(20))


def left(folder):
    """What of the secrets is in a file of the database."""
    written = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file()).lower()
    return [secret for secret in SECRETS if secret in written]


def look(folder, query):
    with contextlib.closing(sqlite3.connect(folder / "conversations.db")) as connection:
        return connection.execute(query).fetchall()


def is_whole(folder):
    """Whether the index has what the messages have, and the file is sound."""
    look(folder, "INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")  # raises if it has not
    return look(folder, "PRAGMA integrity_check") == [("ok",)]


def test_nobody_waits_for_bytes_to_go(store, tmp_path, monkeypatch):
    """The conversation is gone when the call returns, its bytes when the store is closed; the merge is on another thread."""
    secret = furnish(store)
    go, threads = threading.Event(), []

    def merge(self, connection, real=Erasures._merge):
        go.wait(30)
        threads.append(threading.current_thread())
        real(self, connection)

    monkeypatch.setattr(Erasures, "_merge", merge)
    store.erase_soon(secret, tell=pytest.fail)
    assert store.search("swordfish") == []
    assert secret not in [each.id for each in store.list()]
    assert left(tmp_path) != [], "only the merge takes them away"
    go.set()
    store.close()
    assert left(tmp_path) == []
    assert threads[0] is not threading.current_thread()
    assert look(tmp_path, "SELECT count(*) FROM erasures") == [(0,)]
    assert is_whole(tmp_path)


def test_others_read_and_write_between_two_steps(tmp_path, monkeypatch):
    """No step keeps the database from others, who do not even wait; what they erase meanwhile goes too, all else stays."""
    store = opened(tmp_path, busy_seconds=0.0)
    secret = furnish(store)
    more = [talk(store, f"more {n}", "swordfish and zanzibar again") for n in range(3)]
    monkeypatch.setattr(erasures, "_STEP_PAGES", 1)
    steps = []

    def meanwhile(seconds):
        steps.append(seconds)
        assert store.search("harmless")
        talk(store, f"step {len(steps)}", f"harmless step {len(steps)}")
        if more:
            store._remove([more.pop()])

    monkeypatch.setattr(store._erasures._leaving, "wait", meanwhile)
    assert store.erase(secret) == ""
    assert len(steps) > 6, "several steps for each of four erasures"
    assert len(store.search("harmless step", 1000)) == len(steps)
    assert len(store.search("harmless words", 1000)) == 120
    store.close()
    assert left(tmp_path) == []
    assert is_whole(tmp_path)


KILLED = """
import contextlib, os, shutil, sys
from pathlib import Path
from localkv.chat import erasures
from localkv.chat.database import Database
from tests.chat.test_erasures import opened

erasures._STEP_PAGES = 1
whole, secret, seen, real = Path(sys.argv[1]), sys.argv[2], [], Database.beside

def erase(folder, at):
    def counted(statement):
        seen.append(statement)
        if len(seen) > at:
            os._exit(9)

    @contextlib.contextmanager
    def beside(self):
        if at < 0:
            os._exit(9)
        with real(self) as connection:
            connection.set_trace_callback(counted)
            yield connection

    Database.beside = beside
    opened(folder).erase(secret)

def forked(folder, at):
    shutil.copytree(whole, folder)
    if not (child := os.fork()):
        erase(folder, at)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert forked(whole.with_name("not killed"), 10_000) == 0
erase(Path(shutil.copytree(whole, whole.with_name("counted"))), 10_000)
for at in sorted({-1, *range(0, len(seen), len(seen) // 16), len(seen) - 1}):
    assert forked(whole.with_name(f"killed {at}"), at) == 9
"""


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_who_is_killed_is_finished_at_the_next_start(tmp_path):
    """Whenever it happens, from right after the text is gone to the last statement: the next start completes it."""
    (tmp_path / "whole").mkdir()
    store = opened(tmp_path / "whole")
    secret = furnish(store)
    store.close()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    script = [sys.executable, "-c", KILLED, str(tmp_path / "whole"), secret]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert left(tmp_path / "not killed") == []
    killed = sorted(tmp_path.glob("killed *"))
    assert len(killed) > 10
    assert sum(bool(left(folder)) for folder in killed) > 5, "otherwise nothing is left for the next start"
    for folder in killed:
        store = opened(folder)
        assert store.search("swordfish") == []
        store.begin_erasures(pytest.fail)
        store.close()
        assert left(folder) == [], folder
        assert look(folder, "SELECT count(*) FROM erasures") == [(0,)]
        assert is_whole(folder)


def test_a_start_with_nothing_to_do_makes_no_thread(store):
    """Where no erasure is left the start costs one look."""
    talk(store, "talk", "words")
    store.begin_erasures(pytest.fail)
    assert store._erasures._thread is None
    assert store.complete_erasures()


def test_another_program_that_reads_is_waited_for_by_the_next_start(store, tmp_path, monkeypatch):
    """Its old pages must stay for it: that is said, nobody is held up, and the work is not forgotten."""
    secret = furnish(store)
    monkeypatch.setattr(erasures, "_PAUSE_SECONDS", 0.0)
    reader = sqlite3.connect(tmp_path / "conversations.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    assert store.erase(secret) == STILL_READ
    talk(store, "meanwhile", "words")
    told = []
    store.begin_erasures(told.append)
    store._erasures.leave()
    assert told == [STILL_READ]
    reader.execute("COMMIT")
    reader.close()
    assert left(tmp_path) != []
    assert store.complete_erasures()
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [NotWritable("the disk is full"), ConversationError("it is damaged")])
def test_what_was_removed_is_removed_whatever_keeps_its_bytes(store, tmp_path, monkeypatch, error):
    """Whoever erases goes on to the cached state: a database that refuses after the commit is a sentence, and tried again later."""
    secret = furnish(store)

    def refuse(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Erasures, "_merge", refuse)
        assert str(error) in store.erase(secret)
        store.take_away(store.path(store.by_name("late").id)[-1].id)
        assert store.erase_taken() == 1
    assert secret not in [each.id for each in store.list()]
    assert store.try_erasures() == ""
    assert left(tmp_path) == []


def test_what_goes_wrong_in_the_thread_is_said_and_tried_again(store, tmp_path, monkeypatch):
    """A database that refuses is a sentence; the next erasure takes the earlier one along."""
    secret, other = furnish(store), talk(store, "other", "zanzibar")
    errors = [NotWritable("the disk is full"), ConversationError("it is damaged")]

    def refuse(self):
        raise errors.pop(0)

    monkeypatch.setattr(Database, "beside", refuse)
    told = []
    for key in (secret, other):
        store.erase_soon(key, tell=told.append)
        thread = store._erasures._thread
        if thread is not None:
            thread.join(30)
    assert ["the disk is full" in told[0], told[1]] == [True, "it is damaged"]
    monkeypatch.undo()
    store.begin_erasures(pytest.fail)
    store.close()
    assert left(tmp_path) == []


def test_no_erasure_is_lost_between_two_threads(store, tmp_path):
    """However the end of one thread and the next erasure fall together, all of them are completed."""
    keys = [talk(store, f"talk {n}", "swordfish in zanzibar") for n in range(30)]
    for key in keys:
        store.erase_soon(key, tell=pytest.fail)
    store.close()
    assert left(tmp_path) == []
    assert look(tmp_path, "SELECT count(*) FROM erasures") == [(0,)]


def test_two_processes_complete_the_same_erasures(store, tmp_path, monkeypatch):
    """Each does its steps between those of the other, and neither removes the note of what the other is still at."""
    secret, later = furnish(store), talk(store, "again", "swordfish")
    other = opened(tmp_path, busy_seconds=0.0)
    monkeypatch.setattr(erasures, "_STEP_PAGES", 1)
    rounds = []

    def meanwhile(seconds):
        rounds.append(seconds)
        if len(rounds) == 2:
            assert other.complete_erasures()
        if len(rounds) == 3:
            other._remove([later])

    monkeypatch.setattr(store._erasures._leaving, "wait", meanwhile)
    assert store.erase(secret) == ""
    other.close()
    assert left(tmp_path) == []
    assert look(tmp_path, "SELECT count(*) FROM erasures") == [(0,)]
    assert is_whole(tmp_path)


def test_no_connection_writes_text_elsewhere(store):
    """What SQLite sorts is not put into files outside the folder, which nothing erases."""
    with store._database.reading() as one, store._database.beside() as other:
        assert [each.execute("PRAGMA temp_store").fetchone() for each in (one, other)] == [(2,), (2,)]
        assert [each.execute("PRAGMA secure_delete").fetchone() for each in (one, other)] == [(1,), (1,)]


def test_system_prompts_are_erased_like_all_else(tmp_path):
    """The index has them since it tells who spoke; those of an older schema are taken in, found, and leave it whole."""
    from localkv.chat.migrations import MIGRATIONS

    titles = [migration.title for migration in MIGRATIONS]
    old = opened(
        tmp_path, migrations=MIGRATIONS[: titles.index("words of system prompts, copies, erasures that are not complete")]
    )
    secret = talk(old, "secret", "hello", system="open sesame")
    talk(old, "other", "hello", system="open door")
    old.close()
    store = opened(tmp_path)
    for path in (tmp_path / "backups").iterdir():
        path.unlink()
    assert sorted(hit.snippet for hit in store.search("role:system open")) == ["open door", "open sesame"]
    assert store.erase(secret) == ""
    assert [hit.snippet for hit in store.search("role:system open")] == ["open door"]
    store.close()
    assert left(tmp_path) == []
    assert is_whole(tmp_path)
