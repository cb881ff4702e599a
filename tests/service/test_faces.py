"""Who is here, and the end of an engine."""

from localkv.service.faces import Face, Faces
from localkv.service.protocol import Failed, decode_reply


class Wire:
    """A channel that keeps what is sent, or is gone."""

    def __init__(self, gone=False):
        self.gone = gone
        self.sent = []

    def send(self, frame):
        self.sent.append(frame)
        return not self.gone

    def hang_up(self):
        self.gone = True


def test_an_engine_that_ends_lets_nobody_in():
    """Whether the last face has left and whether a new one is welcome is one decision."""
    faces = Faces()
    first, late = Face(Wire()), Face(Wire())
    assert faces.admit(first)
    assert not faces.close_if_empty()
    assert faces.leave(first)
    assert not faces.leave(first)
    assert faces.close_if_empty()
    assert not faces.admit(late)
    faces.end()
    late.end()


def test_last_words_go_out_before_the_end():
    """What was said to a face that has left but not hung up is still written."""
    faces = Faces()
    wire = Wire()
    face = Face(wire)
    faces.admit(face)
    faces.leave(face)
    face.send(Failed(request=1, epoch="e", error="x", message="last words"))
    faces.end()
    assert decode_reply(wire.sent[0]).message == "last words"
    assert wire.gone


def test_a_reply_over_the_cap_becomes_an_error(monkeypatch):
    """A request whose answer fits no frame ends all the same."""
    from localkv.service import protocol

    wire = Wire()
    face = Face(wire)
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 200)
    face.send(Failed(request=1, epoch="e", error="x", message="y" * 300))
    face.end()
    assert decode_reply(wire.sent[0]).error == "ProtocolError"
