"""A face's live connection."""

import threading

from localkv.config import ModelSection, SamplingSection
from localkv.service.link import Link
from localkv.service.protocol import Line, Submit, Welcome
from localkv.service.wire import Door, dial, trust

KEY = b"k" * 32


def test_sending_never_blocks_and_the_end_is_told_once(home):
    """An engine that does not read holds up no key press; when it goes, the face learns it."""
    door = Door(home.socket)
    ends, ended = [], threading.Event()
    accepting = threading.Thread(target=lambda: ends.append(trust(door.accept(), KEY, 10)))
    accepting.start()
    channel = dial(home.socket, KEY, 10)
    accepting.join()
    reasons = []
    welcome = Welcome(request=1, epoch="e", version=1, pid=1)
    link = Link(channel, welcome, lambda reply: None, lambda link, problem: (reasons.append(problem), ended.set()))
    link.start()
    line = Line(role="user", text="x" * 4_000_000)
    for number in range(3):
        link.post(Submit(request=number, conversation="c", model=ModelSection(), lines=(line,), sampling=SamplingSection()))
    ends[0].send(b"\x00 no reply")
    ended.wait()
    assert len(reasons) == 1
    assert "not a reply" in reasons[0]
    link.end(10)
    ends[0].close()
    door.close()
