"""Records on their way out of the slot: copied, named, and handed to the keeper, while the model goes on.

    sent     a copy out of the slot is under way into a place in RAM      device, its own stream
    landed   the bytes are there                                          seen by asking the mark, between tokens
    named    a record's name covers its bytes: 1.3 GB/s of hashing        a thread of its own
    entered  the keeper has it, and the slot knows its name               the engine's thread

Nothing here waits for a copy or for hashing but `settle`, which ends a turn. Records enter in the order in which they were sent,
because a block's name is part of its successor's. At most IN_FLIGHT are under way; a block that has to wait stays where it is, in
the slot.

Knows the slot and the keeper, no turns and no text. Thread: the engine's. Invariant: `live.names` are the blocks that have entered
(or had no room), without a gap; those after them are under way or not sent yet.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from localkv.engine.copier import REACHED, Mark
from localkv.engine.live import Live
from localkv.engine.slot import IN_FLIGHT
from localkv.kv.record import Head, Record, RecordKind, describe, pack_ids
from localkv.placement.keeper import Keeper
from localkv.placement.room import Reservation


@dataclass(slots=True)
class _Leaving:
    """One record under way."""

    kind: RecordKind
    position: int
    ids: bytes
    replaces: str
    spare: bool
    payload: memoryview
    landed: Mark
    place: Reservation | None
    """None: it needs none, or there is no room for it; it gets its name all the same."""
    hold: ExitStack
    """Gives the place back if it was not used."""
    named: "Future[Record] | None" = None


class Admission:
    """The way out of one slot."""

    def __init__(self, live: Live, keeper: Keeper) -> None:
        self._live = live
        self._keeper = keeper
        self._layout = keeper.ground.layout
        self._namer = ThreadPoolExecutor(1, thread_name_prefix="namer")
        self._leaving: deque[_Leaving] = deque()
        self._last_name: Future[Record] | None = None
        """Of the newest block that is under way."""

    # ---- what leaves ----

    def full_blocks(self, checkpoint_every: int = 0) -> None:
        """Send what is full, as far as that needs no waiting; at each so-manyth block edge also the state, if the model needs it.

        A state has to be sent while it is there, so in front of one what is full is waited for.
        """
        self._enter(wait=False)
        while self._has_full_block and len(self._leaving) < IN_FLIGHT:
            self._send_block()
        step = checkpoint_every * self._layout.block_tokens
        if step and not self._layout.only_full and self._live.position % step == 0:
            self.settle()
            self._send_end("", spare=True)

    def keep_state(self, replaces: str = "", *, spare: bool = False) -> Head | None:
        """The state at the live position as a record; None if there is no room for it. Waits until it and all blocks have entered."""
        self.settle()
        live, ground = self._live, self._keeper.ground
        if ground.layout.only_full and live.position == len(live.names) * ground.layout.block_tokens:
            # A checkpoint here would be empty: the last block says it all.
            return Head(live.names[-1], ground.identity, live.position, ground.fingerprint) if live.names else None
        if not self._send_end(replaces, spare=spare):
            return None
        self.settle()
        return Head(live.end, ground.identity, live.position, ground.fingerprint)

    def settle(self) -> None:
        """Send what is full, and wait until all that was sent has entered."""
        while self._has_full_block or self._leaving:
            while self._has_full_block and len(self._leaving) < IN_FLIGHT:
                self._send_block()
            self._enter(wait=True)

    def abandon(self) -> None:
        """Give up what is under way, after a turn that failed. Places are given back when nothing is copied into them any more."""
        while self._leaving:
            one = self._leaving.popleft()
            one.landed.wait()
            one.hold.close()
        self._last_name = None

    def close(self) -> None:
        """End the thread that names. No copy is under way any more when this returns."""
        self.abandon()
        self._live.slot.copier.settle()
        self._namer.shutdown()

    def park(self) -> None:
        """Other state is about to come into the slot: keep on the device what of the present one is worth a place there."""
        self.settle()
        live = self._live
        blocks = {name: i for i, name in enumerate(live.names)}
        with self._keeper.berths.park([*live.names, live.end] if live.end else live.names) as berths:
            for berth in berths:
                if berth.name in blocks:
                    live.send_block(blocks[berth.name], berth.memory)
                else:
                    live.send_end(berth.memory)

    # ---- sending ----

    @property
    def _n_sent(self) -> int:
        return len(self._live.names) + sum(one.kind == "block" for one in self._leaving)

    @property
    def _has_full_block(self) -> bool:
        return (self._n_sent + 1) * self._layout.block_tokens <= self._live.position

    def _send_block(self) -> None:
        size, i = self._layout.block_tokens, self._n_sent
        ids = pack_ids(self._live.ids[i * size : (i + 1) * size])
        n_bytes = self._layout.block_bytes
        hold, place = ExitStack(), None
        payload = memoryview(b"")
        if n_bytes:
            place, payload = self._room(hold, "block", n_bytes)
        landed = self._live.send_block(i, payload) if n_bytes else REACHED
        self._leaving.append(_Leaving("block", (i + 1) * size, ids, "", False, payload, landed, place, hold))

    def _send_end(self, replaces: str, *, spare: bool) -> bool:
        """Send the state at the live position, after all full blocks; False if there is no room."""
        position = self._live.position
        hold = ExitStack()
        place, payload = self._room(hold, "checkpoint", self._layout.checkpoint_bytes(position))
        if place is None:
            return False
        ids = pack_ids(self._live.ids[self._layout.tail_start(position) :])
        landed = self._live.send_end(payload)
        self._leaving.append(_Leaving("checkpoint", position, ids, replaces, spare, payload, landed, place, hold))
        return True

    def _room(self, hold: ExitStack, kind: RecordKind, n_bytes: int) -> tuple[Reservation | None, memoryview]:
        """A place for a record, or else memory of its own, from which only its name is made."""
        place = hold.enter_context(self._keeper.reserve(kind, n_bytes))
        if place.view is None:
            hold.close()
            return None, memoryview(bytearray(n_bytes))
        return place, place.view

    # ---- entering ----

    def _enter(self, *, wait: bool) -> None:
        """Take each record one step on, as far as that goes without waiting, or all the way."""
        for one in self._leaving:
            if one.named is None and (wait or one.landed.reached()):
                one.landed.wait()
                self._name(one)
            if one.named is None:
                break
        while self._leaving and (named := self._leaving[0].named) is not None and (wait or named.done()):
            self._entered(self._leaving.popleft(), named.result())

    def _name(self, one: _Leaving) -> None:
        """Begin to hash it, after its predecessor."""
        before, parent = self._last_name, self._live.names[-1] if self._live.names else self._live.root
        fingerprint = self._live.fingerprint

        def name() -> Record:
            above = before.result().name if before is not None else parent
            return describe(one.kind, above, one.ids, one.position, fingerprint, one.payload)

        one.named = self._namer.submit(name)
        if one.kind == "block":
            self._last_name = one.named

    def _entered(self, one: _Leaving, record: Record) -> None:
        if one.kind == "block":
            self._live.names.append(record.name)
            if self._last_name is one.named:
                self._last_name = None
        elif one.position == self._live.position:
            self._live.end = record.name
        if one.place is not None:
            one.place.commit(record, one.replaces, spare=one.spare)
        one.hold.close()
