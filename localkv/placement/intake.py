"""The intake: new records enter the index, each once, and those that they follow need not be saved any more.

Torch-free. Thread: the control thread. A record whose name is known already has the same bytes as the one that is there, so one
place is enough; what is new is only that it was wanted once more.
"""

import time

from localkv.events import EventLog
from localkv.kv.record import Record
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.judge import Judge
from localkv.placement.room import Room
from localkv.placement.saver import Saver
from localkv.tiers.catalogue import row_of
from localkv.tiers.host import Place
from localkv.tiers.moves import Move


class Intake:
    """Where records come from the engine."""

    def __init__(self, index: Index, judge: Judge, room: Room, saver: Saver, events: EventLog) -> None:
        self._index = index
        self._judge = judge
        self._room = room
        self._saver = saver
        self._events = events

    def enter(self, record: Record, place: Place, replaces: str, saving: Saving, seconds: float) -> None:
        """`record` lies in `place` now, where it came in `seconds`; it follows the checkpoint `replaces`, if that is a name."""
        known = self._index.entries.get(record.name)
        if known is None or known.place is None:
            Move(record.name, "slot", "ram", record.n_bytes, seconds, "admit").log(self._events)
        if known is not None:
            self._enter_again(known, record, place, replaces, saving)
            return
        replaces, now = self._supersede(replaces), time.time()
        entry = Entry(row_of(record, 0, now), record.ids, saving, place, replaces=replaces)
        self._judge.welcome(entry, now)
        self._index.add(entry)
        self._saver.start()

    def _enter_again(self, known: Entry, record: Record, place: Place, replaces: str, saving: Saving) -> None:
        """The same bytes after the same tokens were made before: one of them is enough."""
        if known.place is not None:
            self._room.give_back(place)
        else:
            self._index.settle(known, place, record.ids)
        self._judge.open_names.add(record.name)
        self._judge.use([known], time.time())
        if saving is not Saving.UNSAVED:
            return
        if known.saving in (Saving.SPARE, Saving.PRIVATE):  # it is worth a write again
            self._index.mark(known, Saving.UNSAVED)
        if known.saving is Saving.UNSAVED:
            known.replaces = self._supersede(replaces) or known.replaces
        elif replaces != record.name:
            self._saver.retire(replaces)
        self._saver.start()

    def _supersede(self, name: str) -> str:
        """The record that goes from SSD when the successor of `name` is saved.

        A predecessor that was never saved need not be any more; what it would have replaced is replaced instead.
        """
        entry = self._index.entries.get(name)
        if entry is None or entry.saving is not Saving.UNSAVED or entry.pins:
            return name
        self._index.mark(entry, Saving.SPARE)
        return entry.replaces
