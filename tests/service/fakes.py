"""An engine without a model: scripted answers over the real service. Run as a program it is a whole engine process.

The last line's text is the script, words from left to right: "say WORD" streams one token, "wait" streams no more until the
request is cancelled, "hold" waits until the test opens the gate, "die" kills this process, "crash" raises a bug, "full"
raises ContextFull, "fault" fails like a broken device, "slept" does so in the first engine that is asked.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from localkv.config import Config, ModelSection
from localkv.errors import ContextFull
from localkv.events import EventLog
from localkv.kv.record import Head, pack_ids
from localkv.paths import Home
from localkv.service.protocol import (
    Delta,
    Done,
    Flushed,
    Forgotten,
    Numbers,
    Ready,
    Snapshot,
    Source,
    Started,
    Submit,
    TierUse,
    Unloaded,
)


def snapshot(epoch="e", **changes):
    """A Snapshot in which nothing happens."""
    tier = TierUse()
    quiet = Snapshot(
        request=0, epoch=epoch, model="fake", device="cpu", weights_bytes=0, slot_bytes=0, slot_tokens=0, context_tokens=100,
        vram=tier, ram=tier, ssd=tier, fallback_tokens={}, fallback_turns=0, turns=0, prompt_tokens=0, restored_tokens=0,
        seconds_saved=0.0, written_bytes=0, unsaved_records=0, busy_conversation="", last=Numbers(),
    )  # fmt: skip
    return msgspec.structs.replace(quiet, **changes)


class FakeRuntime:
    """Does what the script in the question says."""

    def __init__(self, epoch="e", diary: Path | None = None):
        self.epoch = epoch
        self.diary = diary
        self.calls = []
        self.gate = threading.Event()
        self.loading = threading.Event()
        self.unloaded = threading.Event()
        self.load_gate = threading.Event()
        self.load_gate.set()
        self.slices = 0
        self.hints = []
        self.turns = 0
        self.busy = ""

    def note(self, what):
        self.calls.append(what)
        if self.diary is not None:
            with self.diary.open("a") as stream:
                stream.write(f"{what}\n")

    def prepare(self, model: ModelSection, progress):
        self.note(f"prepare {model.name}")
        progress("loading", 1, 2, model.name, 0.0)
        self.loading.set()
        self.load_gate.wait()
        progress("loading", 2, 2, model.name, 0.0)
        return Ready(
            request=0, epoch="", model=model, title=model.name, identity="i", context_tokens=100, token_bytes=1, device="cpu"
        )

    def turn(self, request: Submit, emit, cancelled):
        self.note(f"turn {request.lines[-1].text if request.lines[-1].role == 'user' else 'continue'}")
        self.turns += 1
        self.busy = request.conversation
        same = {"request": request.request, "epoch": self.epoch}
        line_ids = tuple(line.ids or pack_ids([7, len(line.text)]) for line in request.lines)
        emit(Started(**same, line_ids=line_ids, prompt_tokens=2, planned=Source(), resume_at=0))
        before = request.lines[-1] if request.lines[-1].role == "assistant" else None
        script = "say more" if before else request.lines[-1].text
        text, ids, reason = self.play(script.split(), emit, same, cancelled)
        text, ids = (before.text + text, before.ids + ids) if before else (text, ids)
        self.busy = ""
        numbers = Numbers(prompt_tokens=2, prefilled_tokens=2, generated_tokens=len(ids) // 4)
        head = Head(f"head of {text}", "i", 3)
        emit(Done(**same, ids=ids, text=text, reason=reason, head=head, numbers=numbers))

    def play(self, words, emit, same, cancelled):
        text, ids = "", b""
        words = iter(words)
        for word in words:
            if word == "say":
                token = next(words)
                emit(Delta(**same, text=token, ids=pack_ids([len(token)])))
                text, ids = text + token, ids + pack_ids([len(token)])
            elif word == "wait":
                cancelled.wait()
            elif word == "hold":
                self.gate.wait()
            else:
                self.misbehave(word)
            if cancelled.is_set():
                return text, ids, "cancelled"
        return text, ids, "end"

    def misbehave(self, word):
        match word:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "crash":
                raise ZeroDivisionError("a bug")
            case "full":
                raise ContextFull(200, 100)
            case "fault":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            case "slept":
                if self.diary.read_text().count(" slept") == 1:
                    raise RuntimeError("CUDA error: unknown error")

    def snapshot(self, heads=()):
        far = {head.name: "ssd" for head in heads}
        return snapshot(turns=self.turns, busy_conversation=self.busy, unsaved_records=self.slices, resume_tiers=far)

    def listen(self, wake):
        self.wake = wake

    def hint(self, hint):
        self.hints.append(hint)
        self.slices += 1
        self.wake()

    def idle(self):
        if self.slices == 0:
            return False
        self.slices -= 1
        self.note("slice")
        return True

    def flush(self, deadline_seconds):
        self.note("flush")
        while self.diary is not None and self.diary.with_name("slow disk").exists():
            time.sleep(0.01)
        return Flushed(request=0, epoch="", records=3, n_bytes=30, seconds=0.0)

    def forget(self, request):
        self.note("forget")
        return Forgotten(request=0, epoch="", records=len(request.names), n_bytes=0)

    def unload(self, *, idle=False):
        self.note("unload idle" if idle else "unload")
        self.unloaded.set()
        return Unloaded(request=0, epoch="", model="fake", freed_bytes=5 << 30, records=3, n_bytes=30)

    def report(self):
        return {"machine": {"cores": 2}}

    def close(self):
        self.note("close")


def make(home: Home, config: Config, events: EventLog, epoch: str):
    """The factory that the engine process of the tests is given."""
    return FakeRuntime(epoch, home.data_dir / "diary.txt")


if __name__ == "__main__":
    from localkv.service import worker

    worker.leave(worker.main(sys.argv[1:], make))
