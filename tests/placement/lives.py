"""A keeper with a pool, a store and no model: an engine's life without a forward pass. Bytes of records follow from their tokens."""

import random

from localkv.errors import BadRecord, StoreError
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.layout import Layer, Layout, Rows
from localkv.kv.record import Head, describe, pack_ids, root_name
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground, Question, SlotView
from localkv.placement.saver import open_store
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers

SIZE = 16
IDENTITY = "ab" * 20
LAYOUT = Layout(tuple(Layer(i, Rows(2, 32, "BF16"), Rows(2, 32, "BF16")) for i in range(2)), SIZE)
GROUND = Ground(LAYOUT, IDENTITY, "print")
PLENTY = SsdLimits(1 << 40, 0)


def payload_of(kind, ids, position):
    """The one right payload of the record that ends the tokens `ids`."""
    n = LAYOUT.block_bytes if kind == "block" else LAYOUT.checkpoint_bytes(position)
    return random.Random(repr((kind, list(ids)))).randbytes(n)


class Life:
    """One engine's life on a store, from start to exit."""

    def __init__(self, root, files=None, limits=PLENTY, places=64, traffic=None):
        self.events = EventLog(None)
        files = files or Files()
        store = Store.later(root, IDENTITY, LAYOUT, files, self.events)
        self.trouble = open_store(store, self.events)
        pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, places * LAYOUT.block_bytes)
        self.keeper = Keeper(GROUND, pool, store, Transfers(2), limits, self.events, traffic=traffic)

    def admit(self, ids, *, replaces="", private=False):
        """Keep the records of `ids`: every whole block and the state at the end; returns the head."""
        parent = root_name(IDENTITY)
        for start in range(0, len(ids) - SIZE + 1, SIZE):
            parent = self._keep("block", parent, ids, start, start + SIZE, private=private)
        edge = len(ids) // SIZE * SIZE
        if edge == len(ids):
            return Head(parent, IDENTITY, edge, "print")
        name = self._keep("checkpoint", parent, ids, edge, len(ids), replaces, private=private)
        return Head(name, IDENTITY, len(ids), "print")

    def _keep(self, kind, parent, ids, start, end, replaces="", *, private=False):
        payload = payload_of(kind, ids[:end], end)
        record = describe(kind, parent, pack_ids(ids[start:end]), end, "print", payload)
        with self.keeper.reserve(kind, len(payload)) as place:
            if place.view is not None:
                place.view[:] = payload
                if private:
                    place.commit(record, replaces, private=True)
                else:
                    place.commit(record, replaces)
        return record.name

    def restore(self, ids, head, *, private=False):
        """Bring what there is for `ids` back, verified against the truth; the tokens restored, and the plan that was carried out."""
        for _ in range(50):
            plan = self.keeper.plan(Question("c", [*ids, 1], head), SlotView())
            try:
                with self.keeper.hold(plan):
                    for piece, view in self.keeper.bring(plan):
                        assert bytes(view) == payload_of(piece.kind, ids[: piece.end], piece.end), "WRONG BYTES"
                return plan.resume_at, plan
            except (BadRecord, StoreError):
                continue
        return 0, None

    def end(self, seconds=10.0):
        """Flush and close; whether all was saved."""
        saved = self.keeper.flush(seconds)
        self.keeper.check()
        self.keeper.close()
        return saved
