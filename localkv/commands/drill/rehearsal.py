"""The kill rehearsal: one stroke after the other, and after each the proof that nothing was lost and nothing wrong was trusted.

    approach   bring the processes to the moment that is sought, braked so that it can be hit
    kill       SIGKILL, some way into the moment
    judge      what is on the disk now; whether the kill landed in its moment
    recover    chat on, and judge again

Torch-free. Thread: main. Invariant: whatever happens, no process of the rehearsal outlives it.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence

import psutil

from localkv.commands.drill.checks import check_leftovers, check_messages, check_store
from localkv.commands.drill.moments import Moment, Stroke
from localkv.commands.drill.person import Person, is_running, wait_gone
from localkv.commands.drill.report import Tally
from localkv.commands.drill.talks import Talks
from localkv.commands.drill.witness import Witness
from localkv.commands.drill.world import World
from localkv.errors import EngineError
from localkv.service.turns import CHECKPOINT_SECONDS

TRIES = 12
"""Kills that may miss one moment before the rehearsal gives up."""

SIGNS: dict[Moment, str] = {
    "start": "born",
    "prefill": "started",
    "answer": "token",
    "save": "saving",
    "evict": "evicting",
    "migration": "migrating",
    "exit": "flush",
}
"""The mark that says that a moment has begun."""

DEPTHS: dict[Moment, float] = {"prefill": 0.12, "answer": 1.9, "save": 0.2, "evict": 0.2, "migration": 0.15, "exit": 0.25}
"""How many seconds a braked moment lasts, about: a kill comes within them. A start is as long as the last one was."""

SIGN_SECONDS = 20.0
EVICT_TURNS = 30
"""So many answers fill the store and make somebody leave it, several times over."""

COMMIT_SECONDS = 0.5
"""What may be lost of an answer that is being written is its last second, and what arrives while that is being written down."""

FLIP_SHARE = 0.4
"""How often a byte is flipped while no engine runs."""


class Rehearsal:
    """Everything that lives while it lasts."""

    def __init__(self, world: World, talks: Talks, rng: random.Random, tally: Tally) -> None:
        self._world = world
        self._talks = talks
        self._rng = rng
        self._tally = tally
        self._witness = Witness(world, tally)
        self._person: Person | None = None
        self._start_seconds = {"engine": 2.0, "face": 2.0}

    def run(self, strokes: Sequence[Stroke], told: Callable[[Stroke], None], enough: Callable[[], bool]) -> None:
        """Do all of `strokes`, or as many as are `enough`. Raises EngineError if the processes do not do what they should."""
        for stroke in strokes:
            if not any(self._strike(stroke) or enough() for _ in range(TRIES)):
                raise EngineError(
                    f"{TRIES} kills in a row missed the moment {stroke.moment!r}; try again on a quieter machine"
                )
            told(stroke)
            if enough():
                return
        self._leave()

    def abandon(self) -> None:
        """End every process that is left, at once."""
        if self._person is not None:
            self._person.kill()
        self._world.end_all()

    # ---- one stroke ----

    def _strike(self, stroke: Stroke) -> bool:
        """Kill once and recover; whether the kill landed in its moment."""
        target = self._approach(stroke)
        if target is None:
            return False
        watched = target if self._is_its_own(stroke) else self._witness.engine()
        ran = watched is not None and is_running(watched) and is_running(target)
        at = time.monotonic()
        self._kill(stroke, target)
        self._witness.watch.brake(None)
        landed = ran and watched is not None and self._landed(stroke, watched, at)
        self._judge(stroke, at)
        self._recover(at)
        self._tally.killed[stroke.moment] += landed
        self._tally.missed += not landed
        return landed

    def _approach(self, stroke: Stroke) -> int | None:
        """The process to kill, once it is in its moment; None if the moment does not come."""
        begins_anew = stroke.moment in ("start", "migration")
        if begins_anew:
            self._leave()
            if stroke.moment == "migration":
                self._world.make_older()
            else:
                self._world.forget_proofs()
        else:
            self._arrive()
        since = self._witness.watch.poll()
        self._witness.watch.brake(stroke.moment)
        if begins_anew:
            self._begin_face()
        sign = self._provoke(stroke, since)
        if sign is None:
            self._witness.watch.brake(None)
            return None
        depth = 0.8 * self._start_seconds[stroke.victim] if stroke.moment == "start" else DEPTHS[stroke.moment]
        time.sleep(stroke.when * depth)
        assert self._person is not None
        return sign if stroke.victim == "engine" else self._person.pid

    def _provoke(self, stroke: Stroke, since: int) -> int | None:
        """Do what brings the moment about; the process whose mark says that it has come."""
        match stroke.moment:
            case "prefill" | "answer" | "save":
                self._talks.begin(self._talks.next(), self._face())
            case "evict":
                return self._fill_store(since)
            case "exit":
                self._ask()
                self._face().close_input()
        return self._wait_for_sign(stroke, since, SIGN_SECONDS)

    def _wait_for_sign(self, stroke: Stroke, since: int, seconds: float) -> int | None:
        role = stroke.victim if stroke.moment == "start" else ""
        wanted = SIGNS[stroke.moment]
        mark = self._witness.watch.wait(since, lambda mark: mark.what == wanted and role in ("", mark.role), seconds)
        return None if mark is None else mark.pid

    def _fill_store(self, since: int) -> int | None:
        for _ in range(EVICT_TURNS):
            self._talks.begin(self._talks.next(), self._face())
            mark = self._witness.watch.wait(since, lambda mark: mark.what == "evicting", 0.3)
            if mark is not None:
                return mark.pid
            self._conclude()
        return None

    def _kill(self, stroke: Stroke, target: int) -> None:
        if stroke.victim == "face":
            self._face().kill()
            return
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself: the kill missed
            psutil.Process(target).kill()
        wait_gone(target)

    def _is_its_own(self, stroke: Stroke) -> bool:
        """Whether the victim itself is in the moment; else a face dies of which the engine is in it."""
        return stroke.victim == "engine" or stroke.moment in ("start", "migration")

    def _landed(self, stroke: Stroke, watched: int, at: float) -> bool:
        """Whether the process `watched` was in the moment when the kill came."""
        if stroke.victim == "face" and stroke.moment == "start" and self._face().out.pieces:
            return False  # it had asked for the first line
        return stroke.moment in self._witness.moments(watched, at)

    # ---- what must hold ----

    def _judge(self, stroke: Stroke, at: float) -> None:
        """What is on the disk right after the kill, and after the survivor has done what it does by itself."""
        person, number = self._face(), self._talks.unfinished
        if stroke.victim == "engine":
            check_store(self._world, self._tally, settled=False)
            self._let_face_go_on(leaves=stroke.moment == "exit")
        else:
            if number is not None and stroke.moment == "answer":
                self._talks.check_cut(number, person.answer(at - CHECKPOINT_SECONDS - COMMIT_SECONDS))
            self._let_engine_go()
            self._person = None
        if number is not None and stroke.moment in ("prefill", "answer"):
            self._talks.check_asked(number)
        check_messages(self._world, self._talks.ledger, self._tally)

    def _let_face_go_on(self, *, leaves: bool) -> None:
        person = self._face()
        if leaves:
            person.wait_end()
            self._person = None
            return
        person.wait_for_prompt()
        if self._talks.unfinished is not None:
            self._talks.conclude(self._talks.unfinished, person)

    def _let_engine_go(self) -> None:
        """Its face is dead: it saves what it has and ends. One that has not let a face in yet waits for the next face."""
        engine = self._witness.engine()
        if engine is None or self._witness.seconds_to_ready(engine) is None:
            return
        self._expect_end(engine)
        check_store(self._world, self._tally, settled=True)

    def _expect_end(self, engine: int) -> None:
        if not wait_gone(engine):
            self._tally.add("leftovers", [f"the engine, process {engine}, has no face left and does not end"])

    def _recover(self, at: float) -> None:
        """Chat on: the next answer ends the recovery."""
        self._arrive()
        for _ in range(3):
            self._ask()
            if self._talks.unfinished is None:
                break
        else:
            self._tally.add("lost_messages", ["a question got no whole answer in three tries after a kill"])
        self._tally.longest_recovery_s = max(self._tally.longest_recovery_s, time.monotonic() - at)
        check_messages(self._world, self._talks.ledger, self._tally)

    def _flip_a_byte(self) -> None:
        """Spoil the newest record of the conversation that goes on next: it must be refused."""
        sure = self._world.sabotage == "no-checksum"
        if not sure and self._rng.random() >= FLIP_SHARE:
            return
        self._talks.favoured = number = self._talks.next()
        head = self._talks.head(number)
        if head is not None:
            self._world.flip(head, self._rng)

    # ---- the processes ----

    def _face(self) -> Person:
        assert self._person is not None, "a face has been started"
        return self._person

    def _begin_face(self) -> None:
        """A new face; what lies on the disk before may be spoilt if no engine uses it."""
        if self._witness.engine() is None:
            self._flip_a_byte()
        self._person = Person(self._world)

    def _arrive(self) -> None:
        """A face waits for the next line."""
        if self._person is None:
            self._begin_face()
        person = self._face()
        person.wait_for_prompt()
        self._start_seconds["face"] = person.seconds_to_prompt
        engine = self._witness.engine()
        seconds = None if engine is None else self._witness.seconds_to_ready(engine)
        self._start_seconds["engine"] = seconds or self._start_seconds["engine"]

    def _ask(self) -> None:
        """One question and what comes of it."""
        self._talks.begin(self._talks.next(), self._face())
        self._conclude()

    def _conclude(self) -> None:
        person = self._face()
        person.wait_for_prompt()
        assert self._talks.unfinished is not None
        self._talks.conclude(self._talks.unfinished, person)
        self._witness.learn()

    def _leave(self) -> None:
        """The face leaves, its engine saves and ends, and everything is in order."""
        if self._person is None:
            self._arrive()
        engine = self._witness.engine()
        self._face().close_input()
        self._face().wait_end()
        self._person = None
        if engine is not None:
            self._expect_end(engine)
        self._tally.add("leftovers", [f"the process {each.pid} serves nobody any more" for each in self._world.processes()])
        self._witness.learn()
        check_store(self._world, self._tally, settled=True)
        check_leftovers(self._world, self._tally)
        check_messages(self._world, self._talks.ledger, self._tally)
