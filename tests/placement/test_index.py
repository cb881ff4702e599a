"""The book of records: every record is found wherever it is looked for, and the sums are right."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from localkv.kv.record import describe, pack_ids
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.warmth import first_use
from localkv.tiers.catalogue import row_of


def row(kind, parent, token, version, used=5.0):
    record = describe(kind, parent, pack_ids([token] * 16), 16, "print", bytes([version]) * 32)
    return row_of(record, 4096, used)


class Booking(RuleBasedStateMachine):
    """The index against a plain dict of rows."""

    names = Bundle("names")

    def __init__(self):
        super().__init__()
        self.index = Index("root")
        self.rows = {}
        self.gone = {}

    @rule(
        target=names, kind=st.sampled_from(["block", "checkpoint"]), token=st.integers(0, 2), version=st.integers(0, 3),
        saving=st.sampled_from([Saving.SAVED, Saving.UNSAVED]), in_ram=st.booleans(),
    )  # fmt: skip
    def add(self, kind, token, version, saving, in_ram):
        made = row(kind, "root", token, version)
        if made.name not in self.rows:
            place = object() if in_ram or saving is Saving.UNSAVED else None
            self.index.add(Entry(made, b"", saving, place))
            self.rows[made.name] = made
            self.gone.pop(made.name, None)
        return made.name

    @rule(name=consumes(names), reason=st.sampled_from(["evicted", "checksum"]))
    def remove(self, name, reason):
        if name in self.rows:
            self.index.remove(name, reason)
            del self.rows[name]
            self.gone[name] = reason

    @rule(name=names)
    def move(self, name):
        entry = self.index.entries.get(name)
        if entry is None:
            return
        if entry.place is None:
            self.index.settle(entry, object(), b"")
        elif entry.saving is Saving.SAVED:
            self.index.unsettle(entry)

    @rule(name=names, saving=st.sampled_from(list(Saving)))
    def mark(self, name, saving):
        entry = self.index.entries.get(name)
        if entry is not None and entry.place is not None:
            self.index.mark(entry, saving)

    @invariant()
    def agrees(self):
        """Lookups, parents and names give what the dict has; what is gone has its reason."""
        self.index.check()
        assert set(self.index.entries) == set(self.rows)
        for lookup in {one.lookup for one in self.rows.values()}:
            wanted = {name for name, one in self.rows.items() if one.lookup == lookup}
            assert {found.name for found in self.index.find(lookup)} == wanted
        checkpoints = {name for name, one in self.rows.items() if one.kind == "checkpoint"}
        assert {found.name for found in self.index.checkpoints_after("root")} == checkpoints
        assert all(self.index.get(name).tier == self.index.entries[name].tier for name in self.rows)
        assert all(self.index.why_gone(name) == reason and self.index.get(name) is None for name, reason in self.gone.items())


TestBooking = Booking.TestCase
TestBooking.__doc__ = "Any order of changes leaves book and dict in agreement."
TestBooking.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_loading_is_adding():
    """Rows of the catalogue give the same book as entries that were added one by one, twins and all."""
    rows = [row(kind, "root", token, version) for kind in ("block", "checkpoint") for token in (0, 1) for version in (0, 1, 2)]
    loaded, added = Index("root"), Index("root")
    loaded.load(rows)
    for one in rows:
        added.add(Entry(one, None, Saving.SAVED))
    loaded.check()
    for one in rows:
        assert loaded.find(one.lookup) == added.find(one.lookup)
        assert loaded.get(one.name) == added.get(one.name)
    assert (loaded.saved_records, loaded.saved_bytes) == (added.saved_records, added.saved_bytes)


def test_what_has_gone_is_remembered_as_warm_as_it_was():
    """A conversation whose records were evicted and that is computed again is no new one."""
    index, warmth = Index("root"), first_use(77.0)
    one = row("block", "root", 1, 1)
    index.add(Entry(one, None, Saving.SAVED, known_warmth=warmth))
    index.remove(one.name, "evicted")
    assert index.warmth_of(one.name, 99.0) is warmth
    assert index.warmth_of("never seen", 99.0) is None


def test_private_records_can_be_made_public():
    """The same tokens in a conversation that is not private: its records may be saved from then on."""
    index, one = Index("root"), row("block", "root", 1, 1)
    index.add(Entry(one, b"", Saving.PRIVATE, object()))
    assert index.unsaved == {}
    index.publish([one.name, "unknown"])
    assert list(index.unsaved) == [one.name]
    index.check()
