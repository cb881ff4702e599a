"""`localkv verify`, `gc`, `purge` and the deletion of conversations, beside an engine and without one."""

import contextlib
import gc
import io
import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from localkv.chat.store import ConversationStore
from localkv.cli import main
from localkv.commands.setup import find_setup
from localkv.config import ModelSection, SamplingSection
from localkv.events import EventLog
from localkv.kv.record import Head, pack_ids
from localkv.messages import Forgotten
from localkv.tiers.upkeep import forget_on_disk
from localkv.tui.app import LocalKVApp
from localkv.tui.app import run as start_screen
from tests.placement.lives import Life

from .engine import CountingRuntime, serving

SHARED = list(range(16))


class KeepingRuntime(CountingRuntime):
    """An engine that does what Forget asks."""

    def __init__(self, home):
        super().__init__()
        self.home = home

    def forget(self, request):
        freed = forget_on_disk(self.home.store, EventLog(None), request)
        return Forgotten(request=0, epoch="", records=freed.records, n_bytes=freed.n_bytes)


@pytest.fixture
def talks(home):
    """Two conversations with the same beginning, both cached; one has a secret."""
    life = Life(home.store)
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        for name, ids, text in (
            ("open", [*SHARED, *range(100, 140)], "harmless"),
            ("secret", [*SHARED, *range(200, 240)], "swordfish"),
        ):
            key = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
            question = store.ask(key, None, text)
            store.set_ids(question.id, pack_ids(ids[:30]))
            answer = store.begin_answer(key, question.id)
            head = life.admit(ids)
            store.finish_answer(
                answer.id, text=f"{text} too", ids=pack_ids(ids[30:]), state="complete", head=head, numbers=None
            )
    assert life.end()
    return home


def run(capsys, *arguments):
    """(exit code, JSON or text of standard output, standard error)."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code or 0, json.loads(out) if "--json" in arguments and out else out, err


def records(home):
    return sorted(home.store.rglob("*.safetensors"))


def everything(home):
    """All bytes of the home but the backups."""
    files = [path for path in home.data_dir.parent.rglob("*") if path.is_file() and home.backups not in path.parents]
    return b"".join(path.read_bytes() for path in files)


# ---- verify ----


def test_verify_of_a_sound_home(talks, capsys):
    """Records, bytes, conversations and messages are counted; heads of which all are cached are no problem."""
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["ok"], report["problems"], report["heads_not_cached"]) == (0, True, [], 0)
    assert report["checked_records"] == len(records(talks)) == 7
    assert report["checked_bytes"] == sum(path.stat().st_size for path in records(talks))
    assert (report["checked_conversations"], report["checked_messages"]) == (2, 4)


def test_verify_of_an_empty_home(home, capsys):
    """A new user has nothing to mend, and looking makes no files."""
    before = sorted(home.data_dir.parent.rglob("*"))
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["ok"], report["checked_records"]) == (0, True, 0)
    assert {path.name for path in set(home.data_dir.parent.rglob("*")) - set(before)} <= {"engine.lock"}


def test_verify_finds_and_mends(talks, capsys):
    """Flipped bytes, lost files and open modes are problems with kinds; --fix mends them; then all is well and stays so."""
    some = random.Random(1).sample(records(talks), 2)
    content = bytearray(some[0].read_bytes())
    content[-1] ^= 1
    some[0].write_bytes(content)
    some[1].unlink()
    talks.event_log.touch()
    talks.event_log.chmod(0o644)
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["ok"]) == (1, False)
    assert sorted(each["kind"] for each in report["problems"]) == ["checksum", "missing_file", "permissions"]
    code, report, _ = run(capsys, "verify", "--fix", "--json")
    assert (code, report["ok"], len(report["problems"])) == (0, True, 3)
    assert all(each["fixed"] for each in report["problems"])
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["problems"]) == (0, [])


@pytest.mark.parametrize("damage", ["missing_file", "checksum", "short_read"])
def test_verify_beside_an_engine(talks, capsys, damage):
    """Safe while an engine runs: bad records are struck out by the engine itself, and the other conversation is whole."""
    victim = records(talks)[0]
    content = bytearray(victim.read_bytes())
    content[5000] ^= 1
    match damage:
        case "missing_file":
            victim.unlink()
        case "checksum":
            victim.write_bytes(content)
        case "short_read":
            victim.write_bytes(victim.read_bytes()[:-1])
    (talks.store / "catalogue.db").chmod(0o644)
    with serving(talks, KeepingRuntime(talks)), _locked(talks):
        code, report, _ = run(capsys, "verify", "--json")
        assert (code, {problem["kind"] for problem in report["problems"]}) == (1, {damage, "permissions"})
        assert not any(problem["fixed"] for problem in report["problems"])
        code, report, _ = run(capsys, "verify", "--fix", "--json")
        assert (code, report["ok"], "message" in report) == (0, True, False)
    assert not victim.exists()
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["checked_records"]) == (0, 6)


def test_what_needs_the_cache_alone_waits_for_the_engine(talks, capsys):
    """A file without a row may be one that the engine is about to publish: nothing of it is changed, and a sentence says what to do."""
    stray = talks.store / "notes.txt"
    stray.touch(mode=0o600)
    os.utime(stray, (1, 1))
    with serving(talks, KeepingRuntime(talks)), _locked(talks):
        code, report, _ = run(capsys, "verify", "--fix", "--json")
    assert (code, report["problems"][0]["fixed"]) == (1, False)
    assert "quit every localkv" in report["message"]
    assert stray.exists()


@pytest.mark.parametrize("ending", ["is_file", "exists"])
def test_verify_of_what_vanishes_meanwhile(talks, capsys, monkeypatch, ending):
    """An engine evicts and a face ends while it looks: what was there a moment ago is no traceback and no problem."""
    real = getattr(Path, ending)
    log = Path(f"{talks.database}-wal")
    passing = talks.store / "passing.part"
    for path in (log, passing):
        path.touch(mode=0o600)

    def then_gone(path):
        found = real(path)
        if path in (log, passing):
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, ending, then_gone)
    code, report, _ = run(capsys, "verify", "--json")
    assert [problem["kind"] for problem in report["problems"]] in ([], ["temp_file"])
    assert report["checked_records"] == 7


def test_verify_reports_damaged_conversations_and_leaves_them(talks, capsys):
    """Conversations are not mended by a program: the way back is named, also with --fix."""
    content = bytearray(talks.database.read_bytes())
    content[4096:8192] = b"x" * 4096
    talks.database.write_bytes(content)
    code, report, _ = run(capsys, "verify", "--fix", "--json")
    assert code == 1
    assert "sessions restore" in report["problems"][0]["what"]
    assert talks.database.read_bytes() == content
    code, text, _ = run(capsys, "verify")
    assert "sessions restore" in text


@contextlib.contextmanager
def _locked(home):
    """The lock as an engine holds it: the one in this process's thread holds none."""
    from filelock import FileLock

    with FileLock(home.engine_lock):
        yield


# ---- deleting conversations ----


@pytest.mark.parametrize("engine", [False, True])
def test_a_removed_conversation_is_gone(talks, capsys, engine):
    """Text and unshared records are gone from every file, WAL and free pages included; the other conversation is untouched."""
    assert b"swordfish" in everything(talks)
    with contextlib.ExitStack() as stack:
        if engine:
            stack.enter_context(serving(talks, KeepingRuntime(talks)))
            stack.enter_context(_locked(talks))
        code, report, _ = run(capsys, "sessions", "rm", "secret", "--json")
    assert (code, report["removed_records"]) == (0, 3)
    assert b"swordfish" not in everything(talks)
    assert len(records(talks)) == 4
    life = Life(talks.store)
    ids = [*SHARED, *range(100, 140)]
    with contextlib.closing(ConversationStore.open(talks.database, talks.backups)) as store:
        head = store.path(store.by_name("open").id)[-1].head
    assert life.restore(ids, head)[0] == len(ids)
    life.end()


def test_erase_in_the_plain_chat(talks, capsys, monkeypatch):
    """/erase removes the open conversation for good, its cached state through the engine that serves the chat."""
    monkeypatch.setattr("sys.stdin", io.StringIO("/erase\n"))
    with serving(talks, KeepingRuntime(talks)):
        code, _, err = run(capsys, "chat", "--plain", "--session", "secret")
    assert (code, "its 3 cached records are gone" in err) == (0, True)
    assert b"swordfish" not in everything(talks)
    assert len(records(talks)) == 4


@pytest.mark.parametrize("face", ["sessions list", "chat --plain", "chat"])
def test_every_start_completes_what_was_being_erased(talks, capsys, monkeypatch, face):
    """Who was killed while the words of a conversation left the index leaves them to whatever is started next."""
    with contextlib.closing(ConversationStore.open(talks.database, talks.backups)) as store:
        store._remove([store.by_name("secret").id])
    assert b"swordfish" in everything(talks)
    if face == "chat":
        monkeypatch.setattr(LocalKVApp, "run", lambda app, **_: None)
        assert start_screen(talks, find_setup().load()) == 0
        gc.unfreeze()
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        with serving(talks, KeepingRuntime(talks)):
            assert run(capsys, *face.split())[0] == 0
    assert b"swordfish" not in everything(talks)


def test_a_command_does_not_fail_because_bytes_must_wait(talks, capsys):
    """Another program reads the old pages: the command does what it says, and where the words still are is said beside it."""
    with contextlib.closing(sqlite3.connect(talks.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        code, report, err = run(capsys, "sessions", "rm", "secret", "--json")
        assert (code, report["session"], "another program reads them" in err) == (0, "secret", True)
        assert b"swordfish" in everything(talks)
    assert run(capsys, "sessions", "list", "--json")[0] == 0
    assert b"swordfish" not in everything(talks)


def test_emptying_the_trash(talks, capsys):
    """All conversations in the trash go for good, the others stay."""
    with contextlib.closing(ConversationStore.open(talks.database, talks.backups)) as store:
        store.trash(store.by_name("secret").id)
    code, report, _ = run(capsys, "sessions", "empty-trash", "--json")
    assert (code, [each["session"] for each in report["removed"]], report["removed_records"]) == (0, ["secret"], 3)
    assert b"swordfish" not in everything(talks)
    assert [each["session"] for each in run(capsys, "sessions", "list", "--all", "--json")[1]] == ["open"]


# ---- gc ----


@pytest.mark.parametrize("engine", [False, True])
def test_gc_frees_what_no_conversation_needs(talks, capsys, engine):
    """Records without a conversation go, with a dry run saying so first; those of conversations stay."""
    life = Life(talks.store)
    life.admit(list(range(900, 950)))
    assert life.end()
    temp = records(talks)[0].with_name("left.part")
    temp.touch()
    with contextlib.ExitStack() as stack:
        if engine:
            stack.enter_context(serving(talks, KeepingRuntime(talks)))
            stack.enter_context(_locked(talks))
        code, report, _ = run(capsys, "gc", "--dry-run", "--json")
        assert (code, report["records"], report["dry_run"]) == (0, 4, True)
        assert len(records(talks)) == 11
        code, report, _ = run(capsys, "gc", "--json")
    assert (code, report["records"], report["files"]) == (0, 4, 0 if engine else 1)
    assert report["bytes"] > 0
    assert len(records(talks)) == 7
    assert temp.exists() is engine
    assert run(capsys, "gc", "--json")[1]["records"] == 0


# ---- purge ----


def test_purge_of_the_cache_keeps_the_conversations(talks, capsys):
    """The cache is gone, the bytes are told, conversations are all there."""
    code, report, _ = run(capsys, "purge", "--cache", "--yes", "--json")
    assert code == 0
    assert report["freed_bytes"] > 7 * 4096
    assert [path for path in talks.cache_dir.rglob("*") if path.is_file() and path != talks.engine_lock] == []
    assert len(run(capsys, "sessions", "list", "--json")[1]) == 2


def test_purge_of_everything(talks, capsys):
    """Nothing of the person is left below the home."""
    (talks.models_dir / "starter").mkdir()
    (talks.models_dir / "starter" / "w.safetensors").write_bytes(b"w")
    talks.backups.mkdir(exist_ok=True)
    (talks.backups / "conversations-x.db").write_bytes(b"swordfish")
    for part in ("-wal", "-shm", "-journal", ".x.before-restore", ".x.before-restore-journal"):
        Path(f"{talks.database}{part}").write_bytes(b"swordfish")
    code, report, _ = run(capsys, "purge", "--all", "--yes", "--json")
    assert code == 0
    assert set(report["deleted"]) == {"cache", "models", "conversations", "logs", "settings"}
    assert [path for path in talks.data_dir.parent.rglob("*") if path.is_file() and path != talks.engine_lock] == []


@pytest.mark.parametrize("kept", ["", ".20260101T000000.000000Z.before-restore"])
def test_purge_leaves_no_text_beside_the_database(talks, capsys, kept):
    """Logs of SQLite, files that a restore kept aside and copies that a kill left half made hold conversations, too."""
    with contextlib.closing(sqlite3.connect(talks.database)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    files = [f"conversations.db{kept}{suffix}" for suffix in ("-wal", "-shm", "-journal")]
    for file in (*files, ".conversations.db.part", ".conversations.db.part-journal"):
        (talks.data_dir / file).write_bytes(b"swordfish")
    assert run(capsys, "purge", "--all", "--yes")[0] == 0
    assert [path for path in talks.data_dir.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(sys.platform == "win32", reason="record locks are POSIX")
def test_purge_of_everything_waits_for_open_conversations(talks, capsys):
    """A chat may be open without an engine: what it writes would be lost, so nothing is deleted; the cache alone may go."""
    program = (
        "import sys; from pathlib import Path; from localkv.chat.store import ConversationStore\n"
        "s = ConversationStore.open(Path(sys.argv[1]), Path(sys.argv[2])); s.list(); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(talks.database), str(talks.backups)]
    before = records(talks)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        code, _, err = run(capsys, "purge", "--all", "--yes")
        assert (code, "quit every localkv" in err) == (1, True)
        assert (records(talks), talks.database.exists()) == (before, True)
        assert run(capsys, "purge", "--cache", "--yes")[0] == 0
        other.stdin.close()
    assert run(capsys, "purge", "--all", "--yes")[0] == 0
    assert not talks.database.exists()


def test_purge_asks_refuses_and_wants_one_part(talks, capsys):
    """Without a terminal it wants --yes; beside an engine it refuses; it wants exactly one part. Nothing is deleted."""
    before = records(talks)
    assert run(capsys, "purge", "--cache")[0] == 2
    assert run(capsys, "purge", "--yes")[0] == 2
    assert run(capsys, "purge", "--cache", "--all", "--yes")[0] == 2
    with _locked(talks):
        code, _, err = run(capsys, "purge", "--cache", "--yes")
    assert code == 1
    assert "quit every localkv" in err
    assert records(talks) == before


@pytest.mark.skipif(sys.platform == "win32", reason="symlinks")
def test_purge_does_not_follow_links(talks, capsys, tmp_path):
    """A link in the cache is deleted, what it points to is not."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    os.symlink(precious, talks.cache_dir / "link")
    assert run(capsys, "purge", "--cache", "--yes")[0] == 0
    assert (precious / "file").exists()
    assert not (talks.cache_dir / "link").exists()


@pytest.mark.parametrize("command", ["verify", "gc"])
def test_a_half_made_copy_is_reported_and_removed(talks, capsys, command):
    """What a killed restore or backup left is a finding of verify and a file for gc; both remove it when asked to."""
    talks.backups.mkdir(mode=0o700)
    copies = [
        talks.data_dir / ".conversations.db.part",
        talks.backups / "conversations-20260101T000000.000000Z-schema1.db.part",
    ]
    for copy in copies:
        copy.touch(0o600)
        copy.write_bytes(b"x" * 100)
    if command == "verify":
        code, report, _ = run(capsys, "verify", "--json")
        assert (code, [each["kind"] for each in report["problems"]]) == (1, ["temp_file", "temp_file"])
        assert all(str(copy) in each["what"] for copy, each in zip(copies, report["problems"], strict=True))
        code, report, _ = run(capsys, "verify", "--fix", "--json")
        assert (code, [each["fixed"] for each in report["problems"]]) == (0, [True, True])
    else:
        report = run(capsys, "gc", "--dry-run", "--json")[1]
        assert (report["files"], report["bytes"], [copy.exists() for copy in copies]) == (2, 200, [True, True])
        assert run(capsys, "gc", "--json")[1]["files"] == 2
        assert run(capsys, "gc", "--json")[1]["files"] == 0
    assert [copy.exists() for copy in copies] == [False, False]


def test_heads_that_are_not_cached_are_no_problem(talks, capsys):
    """A state that made room for others costs time: it is counted, not complained of."""
    with contextlib.closing(ConversationStore.open(talks.database, talks.backups)) as store:
        key = store.by_name("open").id
        question = store.ask(key, store.get(key).leaf, "more")
        answer = store.begin_answer(key, question.id)
        gone = Head("f" * 40, "ab" * 20, 99)
        store.finish_answer(answer.id, text="", ids=b"", state="complete", head=gone, numbers=None)
    code, report, _ = run(capsys, "verify", "--json")
    assert (code, report["ok"], report["heads_not_cached"]) == (0, True, 1)
