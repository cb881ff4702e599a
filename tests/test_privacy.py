"""What is private stays private: modes of all files, conversations that are never written, code of strangers."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from localkv.chat.store import ConversationStore
from localkv.commands.talk import changed_model
from localkv.config import Config, ModelSection
from localkv.errors import PathError
from localkv.models.reference import absolute_name
from localkv.paths import find_home
from localkv.tui.app import chosen
from tests.commands.engine import CountingRuntime, serving
from tests.placement.lives import Life

posix = pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")


def open_to_others(folder):
    """What below `folder` others may read or write, symbolic links aside."""
    places = [folder, *folder.rglob("*")]
    return [str(p) for p in places if not p.is_symlink() and p.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def localkv(*arguments, umask=0, **environment):
    """The command line in a process of its own, with that umask."""
    return subprocess.run(
        [sys.executable, "-m", "localkv", *arguments], capture_output=True, text=True, env=os.environ | environment,
        umask=umask, check=False, timeout=600,
    )  # fmt: skip


@posix
def test_nothing_is_open_to_others_whatever_the_umask(home, monkeypatch, tmp_path):
    """With umask 0 and an engine beside it, everything that a chat makes is its owner's alone: 0700 and 0600."""
    root = tmp_path / "made by localkv" / "deep"
    monkeypatch.setenv("LOCALKV_HOME", str(root))
    before = os.umask(0)
    try:
        made = find_home()
        for extra in (["--new"], ["--new", "--private"]):
            with serving(made, CountingRuntime()):
                done = localkv("say", "say hello", "--session", f"s{len(extra)}", *extra)
                assert done.returncode == 0, done.stderr
        life = Life(made.store)
        life.admit(list(range(40)))
        life.end()
        assert localkv("sessions", "restore", "--list").returncode == 0
    finally:
        os.umask(before)
    assert list(made.backups.iterdir()), "the daily backup is among what is looked at"
    assert len([path for path in root.rglob("*") if path.is_file()]) >= 8
    assert open_to_others(root.parent) == []
    assert open_to_others(find_home().store) == []


@posix
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_open_to_others_after_a_real_answer(home, starter_model, engine_lock, tmp_path, monkeypatch):
    """The same with the real engine and model: records, digests, self-tests, logs and the model's own files."""
    root = tmp_path / "real"
    monkeypatch.setenv("LOCALKV_HOME", str(root))
    (root / "models").mkdir(parents=True)
    (root / "models").chmod(0o700)
    root.chmod(0o700)
    shutil.copytree(starter_model, root / "models" / "starter", copy_function=os.link)
    options = ("--temperature", "0", "--max-tokens", "4", "--json")
    done = localkv("say", "hello", "--session", "open", "--new", *options)
    assert done.returncode == 0, done.stderr
    saved = sorted(find_home().store.rglob("*.safetensors"))
    assert saved
    done = localkv("say", "swordfish " * 300, "--session", "secret", "--new", "--private", *options)
    assert done.returncode == 0, done.stderr
    assert sorted(find_home().store.rglob("*.safetensors")) == saved, "nothing of a private conversation was saved"
    assert json.loads(localkv("verify", "--json").stdout)["ok"]
    model = root / "models"
    assert [path for path in open_to_others(root) if not path.startswith(str(model))] == []


# ---- private conversations ----


def test_private_records_never_reach_the_disk(tmp_path):
    """They are restored from RAM as long as the engine lives; no flush, no pressure and no exit writes them."""
    life = Life(tmp_path / "store", places=8)
    ids = list(range(60))
    with life.keeper.quiet(private=True):
        head = life.admit(ids)
        assert life.restore(ids, head)[0] == 60
    assert life.keeper.flush(10)
    with life.keeper.quiet(private=True):
        assert life.restore(ids, head)[0] == 60
    for start in (1000, 2000, 3000):  # RAM is full: private records make room, unwritten
        life.admit(list(range(start, start + 60)))
    assert life.end()
    found = {path.stem for path in (tmp_path / "store").rglob("*.safetensors")}
    assert head.name not in found
    assert len(found) == 3 * 4
    assert head.name[:20].encode() not in b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())


def test_what_a_public_conversation_shares_with_a_private_one_is_saved(tmp_path):
    """Equal tokens in an open conversation, such as a system prompt, give nothing away: its chain on SSD has no hole."""
    life = Life(tmp_path / "store")
    shared = list(range(32))
    secret, public = [*shared, *range(500, 520)], [*shared, *range(700, 720)]
    with life.keeper.quiet(private=True):
        life.admit(secret)
    with life.keeper.quiet():
        assert life.restore(public, None)[0] == 32
        head = life.admit(public)
    assert life.end()
    life = Life(tmp_path / "store")
    assert life.restore(public, head)[0] == len(public)
    assert life.restore(secret, None)[0] == 32
    life.end()


def test_a_private_turn_is_asked_for_as_private(home):
    """The flag is stored with the conversation and goes with every question, from every face."""
    for arguments in (["--new", "--private"], []):
        with serving(home, CountingRuntime()) as engine:
            assert localkv("say", "say a", "--session", "s", *arguments, umask=0o77).returncode == 0
        assert [request.private for request in engine.requests] == [True]
    with serving(home, CountingRuntime()) as engine:
        done = subprocess.run(
            [sys.executable, "-m", "localkv", "chat", "--plain", "--private"], input="say b\n/new\nsay c\n", text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert [request.private for request in engine.requests] == [True, True]
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        assert all(each.private for each in store.list())


def test_privacy_is_decided_at_the_beginning(home):
    """What an open conversation has saved cannot be taken back by a later flag, so the flag is refused."""
    with serving(home, CountingRuntime()):
        assert localkv("say", "say a", "--session", "s", "--new").returncode == 0
    done = localkv("say", "say b", "--session", "s", "--private")
    assert done.returncode == 2
    assert "--new" in done.stderr


# ---- strangers' code ----


def test_code_is_trusted_of_one_model(tmp_path):
    """Trust in the code of one model does not pass to another that is named later; asking for it by name works."""
    trusted = ModelSection(name="org/with-code", trust_remote_code=True)
    assert changed_model(trusted, {"quant": "8bit"}, "x").trust_remote_code
    assert changed_model(trusted, {"name": "org/with-code"}, "x").trust_remote_code
    assert not changed_model(trusted, {"name": "org/other"}, "x").trust_remote_code
    assert changed_model(trusted, {"name": "org/other", "trust_remote_code": True}, "x").trust_remote_code
    config = Config(model=trusted)
    assert not chosen(config, "org/other", None).model.trust_remote_code
    assert chosen(config, "org/with-code", None).model.trust_remote_code
    assert absolute_name("org/other") == "org/other"


@posix
@pytest.mark.parametrize("part", ["cache", "data"])
def test_a_place_that_others_may_change_is_refused(home, part):
    """A cache root or data directory that others may write to ends every face with a sentence, before anything is read."""
    (home.cache_dir if part == "cache" else home.data_dir).chmod(0o777)
    done = localkv("say", "hi", "--session", "s", "--new")
    assert done.returncode == 1
    assert "chmod 700" in done.stderr
    assert not home.database.exists()


@posix
def test_a_store_of_another_user_is_refused(home, monkeypatch):
    """Records and keys of somebody else are not trusted."""
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(PathError, match="another user"):
        home.prepare()
