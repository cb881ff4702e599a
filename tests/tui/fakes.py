"""Stand-ins for the engine and its turns: scripted, without threads of their own, without clocks."""

import queue
import threading

from localkv.kv.record import pack_ids
from localkv.service.protocol import (
    Delta,
    Fallback,
    Flushed,
    Forget,
    Forgotten,
    Look,
    Numbers,
    Preloads,
    Prepare,
    Progress,
    Ready,
    Restores,
    Snapshot,
    Source,
    Spread,
    Started,
    TierUse,
    Unload,
    Unloaded,
    Written,
)
from localkv.service.turn_events import Asked, Finished

EPOCH = "e1"
NOON = 1_750_000_000.0

NUMBERS = Numbers(
    prompt_tokens=12_410,
    restored=Source(ram=12_288),
    prefilled_tokens=122,
    generated_tokens=214,
    restore_seconds=0.21,
    restored_bytes=1 << 30,
    prefill_seconds=0.09,
    predicted_restore_seconds=0.2,
    predicted_prefill_seconds=0.095,
    ttft_ms=340.0,
    tokens_per_second=41.2,
)

SPREAD = Spread(count=30, p50=2.41, p90=8.07, p99=31.5)

INEXACT = Numbers(
    prompt_tokens=900,
    restored=Source(ssd=512),
    prefilled_tokens=388,
    generated_tokens=20,
    fallbacks=(Fallback("checksum", 256),),
    exact=False,
    inexact_because="checksum",
    ttft_ms=900.0,
    tokens_per_second=39.0,
)


def snapshot(**changes):
    """What the panel shows of an engine that has worked for a while."""
    facts = {
        "request": 0,
        "epoch": EPOCH,
        "model": "Qwen3-4B",
        "device": "cuda:0",
        "weights_bytes": 8 << 30,
        "slot_bytes": 4 << 30,
        "slot_tokens": 12_410,
        "context_tokens": 32_768,
        "vram": TierUse(used_bytes=int(5.8 * 2**30), limit_bytes=8 << 30, swaps_in=7, swaps_out=3),
        "ram": TierUse(used_bytes=14 << 30, limit_bytes=32 << 30, swaps_in=4, swaps_out=1),
        "ssd": TierUse(used_bytes=61 << 30, limit_bytes=512 << 30),
        "fallback_tokens": {"checksum": 256, "evicted": 1_024},
        "fallback_turns": 2,
        "turns": 19,
        "prompt_tokens": 60_000,
        "restored_tokens": 57_000,
        "seconds_saved": 83.0,
        "written_bytes": 3 << 30,
        "unsaved_records": 2,
        "fallback_prefills": {"checksum": 1, "evicted": 1},
        "preloads": Preloads(loaded=12, hits=9, wasted=1, wasted_bytes=24 << 20),
        "written": Written(today_bytes=5 << 30, total_bytes=77 << 30),
        "busy_conversation": "",
        "last": NUMBERS,
        "recent": ("restored 12,288 tokens from RAM in 0.21 s", "saved 4 records, 96 MiB"),
    }
    return Snapshot(**{**facts, **changes})


def busy_hour(history, begin=NOON - 3_600.0, minutes=60):
    """What a face saw in an hour: a turn in each minute, tiers that fill, records that move."""
    for minute in range(minutes):
        numbers = Numbers(
            prompt_tokens=1_000 + 100 * minute,
            restored=Source(ram=0 if minute % 20 == 0 else 900 + 95 * minute),
            generated_tokens=200,
            ttft_ms=2_400.0 if minute % 20 == 0 else 120.0 + 5 * minute,
            tokens_per_second=48.0 - minute / 5,
        )
        moved = 4 * minute + (30 if minute > 40 else 0)
        state = snapshot(
            turns=19 + minute,
            last=numbers,
            written_bytes=(3 << 30) + (minute // 7) * (96 << 20),
            vram=TierUse(used_bytes=min(8 << 30, (minute + 4) << 27), limit_bytes=8 << 30, swaps_in=7 + moved, swaps_out=3),
            ram=TierUse(
                used_bytes=(4 << 30) + minute * (170 << 20), limit_bytes=32 << 30, swaps_in=4 + moved // 3, swaps_out=minute // 9,
                ms_in=SPREAD,
            ),
            ssd=TierUse(used_bytes=(60 << 30) + minute * (40 << 20), limit_bytes=512 << 30, swaps_in=minute, ms_in=SPREAD, ms_out=SPREAD),
            ttft_ms=Spread(count=80, p50=180.0, p90=310.0, p99=2_400.0),
            tokens_per_second=Spread(count=80, p50=41.2, p90=44.9, p99=47.6),
            restores=Restores(tried=71, failed=1, n_bytes=71 << 28, ms=Spread(count=70, p50=92.0, p90=210.0, p99=640.0)),
            preloads=Preloads(loaded=120, hits=84, hit_bytes=84 << 24, wasted=9, wasted_bytes=9 << 24, cancelled=2),
            written=Written(today_bytes=5 << 30, total_bytes=77 << 30),
        )  # fmt: skip
        history.note(state, begin + 60 * (minute + 1))


def ready(model, **changes):
    """A loaded model."""
    facts = {
        "request": 0,
        "epoch": EPOCH,
        "model": model,
        "title": "Qwen3-4B",
        "identity": "i",
        "context_tokens": 32_768,
        "token_bytes": 147_456,
        "device": "cuda:0",
    }
    return Ready(**{**facts, **changes})


class FakeClient:
    """An engine that answers what it is told to. `hold` keeps it loading until it is set."""

    def __init__(self, *, replies=None, shown=None):
        self.latest_snapshot = shown
        self.alive = False
        self.hold = threading.Event()
        self.hold.set()
        self.sent = []
        self.hints = []
        self.resumes = {}
        self.replies_to_prepare = replies
        self.connect_problem = None
        self.left = 0
        self.leave_hold = threading.Event()
        self.leave_hold.set()
        self._numbers = iter(range(1, 10_000))

    def connect(self):
        if self.connect_problem is not None:
            raise self.connect_problem
        self.alive = True

    def next_request(self):
        return next(self._numbers)

    def send(self, request):
        self.sent.append(request)

    def hint(self, request):
        self.hints.append(request)

    def replies(self, request_id, timeout=None):
        request = next(each for each in self.sent if each.request == request_id)
        if isinstance(request, Look):
            return
        if isinstance(request, Forget):
            yield Forgotten(request=request_id, epoch=EPOCH, records=2, n_bytes=1)
            return
        if isinstance(request, Unload):
            yield Unloaded(request=request_id, epoch=EPOCH, model="Qwen3-4B", freed_bytes=8 << 30, records=2, n_bytes=1)
            return
        assert isinstance(request, Prepare)
        yield Progress(
            request=request_id, epoch=EPOCH, phase="loading", done=1 << 30, total=2 << 30, detail="loading Qwen3-4B"
        )
        self.hold.wait(30)
        yield from self.replies_to_prepare or [ready(request.model)]

    def leave(self, timeout):
        self.left += 1
        self.leave_hold.wait(30)
        return Flushed(request=0, epoch=EPOCH, records=3, n_bytes=1, seconds=0.1)


class FakeTurn:
    """A turn that says what the test puts into it, and keeps the store as the real one does."""

    def __init__(self, chat, conversation, question, *, resumed=None, parent=None, above=""):
        self.chat = chat
        self.conversation = conversation
        self.question = question
        self.cancelled = threading.Event()
        self.script = queue.SimpleQueue()
        self.text = resumed.text if resumed is not None else ""
        self.resumed = resumed
        self.parent = parent
        self.above = above
        """What the question hangs on; empty for the message that is looked at."""
        self.store_it = chat.stores
        self.failure = chat.failure
        self.started = threading.Event()
        self.over = threading.Event()
        chat.turns.append(self)

    # What tests do

    def progress(self, phase, done, total, rate=0.0):
        self.script.put(Progress(request=1, epoch=EPOCH, phase=phase, done=done, total=total, per_second=rate))

    def write(self, text, tokens=1):
        self.script.put(Delta(request=1, epoch=EPOCH, text=text, ids=pack_ids([1] * tokens)))

    def put(self, event):
        self.script.put(event)

    def end(self, state="complete", **facts):
        self.script.put(("end", state, facts))

    # What the screen does

    def cancel(self):
        self.cancelled.set()
        self.end("stopped", reason="cancelled")

    def run(self):
        self.started.set()
        try:
            yield from self._run()
        finally:
            self.over.set()

    def _run(self):
        if self.failure is not None:
            raise self.failure
        question_id, answer_id = self._store_question()
        yield Asked(question_id, answer_id)
        yield Started(request=1, epoch=EPOCH, line_ids=(), prompt_tokens=10, planned=Source(), resume_at=0)
        while True:
            event = self.script.get(timeout=30)
            if isinstance(event, tuple):
                yield self._finish(question_id, answer_id, event[1], event[2])
                return
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Delta):
                self.text += event.text
            yield event

    def _store_question(self):
        store = self.chat.store
        if not self.store_it:
            return None, None
        if self.resumed is not None:
            return None, store.reopen_answer(self.resumed.id).id
        question = self.parent
        if self.question is not None:
            leaf = store.get(self.conversation).leaf if self.above == "" else self.above
            question = store.ask(self.conversation, leaf, self.question).id
        return (question if self.question is not None else None), store.begin_answer(self.conversation, question).id

    def _finish(self, question_id, answer_id, state, facts):
        numbers = facts.pop("numbers", NUMBERS)
        if facts.get("unsaved"):
            self.chat.unsaved = (self.conversation,)
        elif answer_id is not None:
            self.chat.store.finish_answer(answer_id, text=self.text, ids=b"", state=state, head=None, numbers=numbers)
        return Finished(state, self.text, b"", question_id, answer_id, numbers=numbers, **facts)


class FakeChat:
    """Makes FakeTurns."""

    def __init__(self, store):
        self.store = store
        self.turns = []
        self.unsaved = ()
        self.retries = 0
        self.stores = True
        self.failure = None
        """What the turns made from now on raise before they say anything."""

    def finish_all(self):
        """No thread of a turn outlives its test."""
        for turn in self.turns:
            turn.end()
        for turn in self.turns:
            if turn.started.is_set():
                turn.over.wait(10)

    def retry_unsaved(self):
        self.retries += 1
        return ""

    def ask(self, conversation_id, text):
        return FakeTurn(self, conversation_id, text)

    def edit(self, conversation_id, message_id, text):
        return FakeTurn(self, conversation_id, text, above=self.store.message(message_id).parent)

    def regenerate(self, conversation_id):
        path = self.store.path(conversation_id)
        if path[-1].role == "assistant":
            path.pop()
        return FakeTurn(self, conversation_id, None, parent=path[-1].id)

    def continue_answer(self, conversation_id):
        return FakeTurn(self, conversation_id, None, resumed=self.store.path(conversation_id)[-1])
