"""What a face gets when it reads late: everything that matters, merged."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from localkv.kv.record import pack_ids
from localkv.service.outbox import Outbox
from localkv.service.protocol import Delta, Done, Numbers, Progress, Snapshot, Welcome

from .fakes import snapshot


def delta(request, word):
    return Delta(request=request, epoch="e", text=word, ids=pack_ids([len(word)]))


def progress(request, done):
    return Progress(request=request, epoch="e", phase="prefill", done=done, total=9)


def done(request):
    return Done(request=request, epoch="e", ids=b"", text="", reason="end", head=None, numbers=Numbers())


def drain(outbox):
    outbox.close()
    return list(iter(outbox.take, None))


replies = st.lists(
    st.one_of(
        st.builds(delta, st.integers(1, 3), st.text(max_size=3)),
        st.builds(progress, st.integers(1, 3), st.integers(0, 9)),
        st.builds(done, st.integers(1, 3)),
        st.builds(lambda n: snapshot(turns=n), st.integers(0, 9)),
    )
)


@given(replies)
def test_merging_loses_nothing_that_matters(sent):
    """Text, ids and final replies arrive complete and in order per request; of progress and snapshots the newest."""
    outbox = Outbox()
    for reply in sent:
        assert outbox.put(reply)
    got = drain(outbox)
    assert len(got) <= len(sent)
    for request in (1, 2, 3):
        for field in ("text", "ids"):
            streams = [
                [getattr(reply, field) if isinstance(reply, Delta) else "|" for reply in side
                 if reply.request == request and isinstance(reply, Delta | Done)]
                for side in (sent, got)
            ]  # fmt: skip
            assert _joined(streams[0]) == _joined(streams[1])
        newest = [reply for reply in sent if isinstance(reply, Progress) and reply.request == request][-1:]
        assert [reply for reply in got if isinstance(reply, Progress) and reply.request == request] == newest
    assert [reply for reply in got if isinstance(reply, Snapshot)] == [reply for reply in sent if isinstance(reply, Snapshot)][
        -1:
    ]


def _joined(parts):
    """Neighbouring pieces of one answer as one, the ends of answers kept apart."""
    whole = [parts[0][:0]] if parts and parts[0] != "|" else []
    for part in parts:
        if part == "|" or not whole or whole[-1] == "|":
            whole.append(part)
        else:
            whole[-1] += part
    return [part for part in whole if part]


def test_tokens_that_wait_are_one_delta():
    """A face that was stopped for a while gets one frame, not thousands."""
    outbox = Outbox()
    for word in ("a", "b", "c"):
        outbox.put(delta(1, word))
    outbox.put(Welcome(request=9, epoch="e", version=1, pid=1))
    outbox.put(delta(1, "d"))
    outbox.put(delta(2, "x"))
    assert [reply.text for reply in drain(outbox) if isinstance(reply, Delta)] == ["abcd", "x"]


def test_a_face_that_reads_nothing_is_noticed():
    """The outbox is bounded in bytes; reading makes room again."""
    outbox = Outbox(limit_bytes=2000)
    assert outbox.put(delta(1, "a" * 500))
    assert not outbox.put(delta(2, "b" * 2000))
    assert outbox.take().text == "a" * 500
    outbox.take()
    assert outbox.put(delta(3, "c"))


def test_a_closed_outbox_gives_what_it_has_and_wakes_its_writer():
    """The last words go out, then the writer thread ends."""
    outbox = Outbox()
    got = []
    writer = threading.Thread(target=lambda: got.extend(iter(outbox.take, None)))
    writer.start()
    outbox.put(delta(1, "last"))
    outbox.close()
    writer.join()
    assert [reply.text for reply in got] == ["last"]
    assert outbox.put(delta(1, "too late"))
    assert outbox.take() is None
