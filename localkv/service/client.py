"""A face's way to the engine: finds it or starts it, sends requests, sorts replies.

Torch-free; never imports the engine. Threads: any may call anything; each request is read by one. Invariants: a reply of
another epoch or to an unknown request is dropped and counted; every open request ends, if need be with
Failed("EngineDied") made here when the engine is gone. An engine that says so of itself is gone from then on.
"""

import functools
import itertools
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from localkv.config import Config
from localkv.errors import EngineUnavailable
from localkv.paths import Home
from localkv.service.launch import EXIT_ALREADY_RUNNING, EXIT_OK, start_engine
from localkv.service.link import Link, greet
from localkv.service.log import last_lines
from localkv.service.protocol import (
    FINAL,
    AnyReply,
    AnyRequest,
    Cancel,
    Delta,
    Done,
    Failed,
    Flushed,
    Hello,
    Leave,
    Look,
    Origin,
    Ready,
    Snapshot,
    Started,
)
from localkv.service.watch import Sign, Watch, end_process
from localkv.service.wire import dial, peer_process, read_key

CONNECT_SECONDS = 60.0
"""Longer than an ending engine may flush and a new one needs to open its door; it imports torch only after that."""
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.02
_END_SECONDS = 5.0

Spawn = Callable[[], "subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class Resume:
    """How far away a conversation is: predicted seconds until its next message can be computed, and from where it comes."""

    seconds: float
    origin: Origin


class EngineClient:
    """The engine as a face sees it. Nothing happens before `connect`."""

    def __init__(
        self,
        home: Home,
        config: Config,
        *,
        spawn: Spawn | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        make_watch: Callable[[], Watch] = Watch,
    ) -> None:
        self._home = home
        self._spawn = spawn or functools.partial(start_engine, home, config)
        self._connect_seconds = connect_seconds
        self._make_watch = make_watch
        self._watch = make_watch()
        self._hung = ""
        """Why the engine was ended from here."""
        self._numbers = itertools.count(1)
        self._connecting = threading.Lock()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._inboxes: dict[int, tuple[Link | None, queue.SimpleQueue[AnyReply]]] = {}
        self.latest_snapshot: Snapshot | None = None
        self.resumes: Mapping[str, Resume] = {}
        """By name of head: how far away the conversations are that the last Look with heads asked for."""
        self.dropped = 0
        """Replies that belonged to another engine or to no open request."""

    @property
    def alive(self) -> bool:
        """Whether there is an engine at the other end, as far as is known."""
        return self._link is not None

    @property
    def epoch(self) -> str:
        """The engine that is connected; empty if none is."""
        link = self._link
        return "" if link is None else link.epoch

    @property
    def engine_pid(self) -> int | None:
        """The process of that engine."""
        link = self._link
        return None if link is None else link.pid

    def connect(self) -> None:
        """Be connected to an engine, starting one if none runs; at once if it is so already. Raises EngineUnavailable."""
        with self._connecting:
            if not self.alive:
                self._home.prepare()
                self._reach()

    def restart(self) -> None:
        """Be connected to an engine after the last one died. Raises EngineUnavailable."""
        self.connect()

    def next_request(self) -> int:
        """A request id that this client has not used."""
        return next(self._numbers)

    def send(self, request: AnyRequest) -> None:
        """Send `request`; never blocks, and if there is no engine its reply is Failed("EngineDied").

        Whatever is sent, Cancel excepted, must be read with `replies` or `next_reply` or given up with `forget`.
        Raises ProtocolError if it is too large.
        """
        with self._lock:
            link = self._link
            if not isinstance(request, Cancel):
                self._inboxes[request.request] = (link, queue.SimpleQueue())
                if link is None:
                    self._inboxes[request.request][1].put(self._died(request.request, ""))
        if link is not None:
            posted = False
            try:
                link.post(request)
                posted = True
            finally:
                if not posted:
                    self.forget(request.request)

    def hint(self, request: AnyRequest) -> None:
        """Send what has no reply of its own; never blocks, and without an engine nothing happens. Raises ProtocolError."""
        link = self._link
        if link is not None:
            link.post(request)

    def next_reply(self, request_id: int, timeout: float | None = None) -> AnyReply | None:
        """The next reply to a request that was sent, waiting for it; None when `timeout` seconds have passed.

        After a final reply (protocol.FINAL) the request is closed.
        """
        inbox = self._inboxes[request_id][1]
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            step = self._watch.probe_seconds
            if until is not None:
                step = max(0.0, min(step, until - time.monotonic()))
            try:
                reply = inbox.get(timeout=step)
            except queue.Empty:
                self._waited(step)
                if until is not None and time.monotonic() >= until:
                    return None
                continue
            if isinstance(reply, FINAL):
                self.forget(request_id)
            return reply

    def _waited(self, seconds: float) -> None:
        """Nothing came for a while: ask for a sign of life now and then, and end an engine that has given none for too long."""
        link = self._link
        if link is None:
            return
        match self._watch.waited(seconds):
            case Sign.PROBE:
                link.post(Look(request=0))
            case Sign.HUNG:
                self._hung = "the engine did not answer any more and was ended; what it was doing must be asked again"
                end_process(link.pid)
            case Sign.WAIT:
                pass

    def replies(self, request_id: int, timeout: float | None = None) -> Iterator[AnyReply]:
        """All replies to a request up to its final one. Raises EngineUnavailable if `timeout` seconds pass without any."""
        while True:
            reply = self.next_reply(request_id, timeout)
            if reply is None:
                self.forget(request_id)
                raise EngineUnavailable(f"the engine did not answer within {timeout} s; see {self._home.engine_log}")
            yield reply
            if isinstance(reply, FINAL):
                return

    def forget(self, request_id: int) -> None:
        """Do not wait for a request any more; what still comes for it is dropped."""
        with self._lock:
            self._inboxes.pop(request_id, None)

    def give_up(self, request_id: int) -> None:
        """Stop waiting for a request whose answer does not come: its reader gets Failed("Cancelled") now. Any thread."""
        with self._lock:
            known = self._inboxes.get(request_id)
        if known is not None:
            known[1].put(Failed(request=request_id, epoch=self.epoch, error="Cancelled", message="given up"))

    def leave(self, timeout: float) -> Flushed | None:
        """Say goodbye: the engine flushes and ends if this was the last face. None if it did not confirm in time.

        One that has given no sign of life meanwhile hangs, and is ended: nobody may be left who would do it.
        """
        link = self._link
        if link is None:
            return None
        leave = Leave(request=self.next_request())
        self.send(leave)
        reply = self.next_reply(leave.request, timeout)
        if reply is None and self._watch.hangs(timeout):
            end_process(link.pid)
        self.close()
        return reply if isinstance(reply, Flushed) else None

    def close(self) -> None:
        """Hang up without a word. The engine treats it as leaving."""
        link = self._link
        if link is not None:
            link.end(_END_SECONDS)

    def _reach(self) -> None:
        """Knock; if nobody opens, start an engine; knock again until it opens its door."""
        deadline = time.monotonic() + self._connect_seconds
        child: subprocess.Popen[bytes] | None = None
        try:
            while not self._knock():
                if child is None:
                    child = self._spawn()
                elif self._ended_early(child):
                    child = None
                if time.monotonic() > deadline:
                    raise EngineUnavailable(self._why_nobody_answered())
                time.sleep(_POLL_SECONDS)
        finally:
            if child is not None:
                # An engine outlives neither its last face nor, as a zombie, its own end.
                threading.Thread(target=child.wait, name="engine-reaper", daemon=True).start()

    def _why_nobody_answered(self) -> str:
        seconds = f"{self._connect_seconds:.0f} s"
        pid = peer_process(self._home.socket)
        if pid is not None:
            return f"the engine, process {pid}, has not answered for {seconds}; end it (kill -9 {pid}) and try again"
        return f"no engine answered within {seconds}{self._last_words()}"

    def _ended_early(self, child: "subprocess.Popen[bytes]") -> bool:
        """Whether `child` gave way to another engine and may be replaced. Raises EngineUnavailable if it failed."""
        exit_code = child.poll()
        if exit_code is None:
            return False
        if exit_code in {EXIT_OK, EXIT_ALREADY_RUNNING}:
            return True
        raise EngineUnavailable(f"the engine could not start (exit code {exit_code}){self._last_words()}")

    def _last_words(self) -> str:
        lines = last_lines(self._home.engine_log, 6)
        said = "; its last words were:\n  " + "\n  ".join(lines) if lines else ""
        return f"{said}\nThe whole log: {self._home.engine_log}"

    def _knock(self) -> bool:
        key = read_key(self._home.engine_key)
        channel = None if key is None else dial(self._home.socket, key, _ANSWER_SECONDS)
        if channel is None:
            return False
        bound = threading.Timer(_ANSWER_SECONDS, channel.hang_up)
        bound.daemon = True
        bound.start()
        welcome = None
        try:
            welcome = greet(channel, Hello(request=self.next_request()))
        finally:
            bound.cancel()
            if welcome is None:
                channel.close()
        if welcome is None:
            return False
        link = Link(channel, welcome, self._sort, self._end)
        with self._lock:
            self._link = link
            self._watch, self._hung = self._make_watch(), ""
            self.resumes = {}  # another engine has nothing in its slot that the one before had
        link.start()
        return True

    def _sort(self, reply: AnyReply) -> None:
        with self._lock:
            if self._link is None or reply.epoch != self._link.epoch:
                self.dropped += 1
                return
            self._watch.heard(worked=isinstance(reply, Ready | Started | Delta | Done))
            if isinstance(reply, Failed) and reply.error == "EngineDied":
                self._link = None  # its last words: whoever asks again must not ask this one
            if isinstance(reply, Snapshot):
                self.latest_snapshot = reply
                self.resumes = _resumes(reply) or self.resumes
                if reply.request == 0:
                    return
            known = self._inboxes.get(reply.request)
            if known is None:
                self.dropped += 1
            else:
                known[1].put(reply)

    def _end(self, link: Link, problem: str) -> None:
        with self._lock:
            if self._link is link:
                self._link = None
            for request_id, (owner, inbox) in self._inboxes.items():
                if owner is link:
                    inbox.put(self._died(request_id, problem, link.epoch))

    def _died(self, request_id: int, problem: str, epoch: str = "") -> Failed:
        message = problem or self._hung or "the engine has ended; what it was doing must be asked again"
        return Failed(request=request_id, epoch=epoch, error="EngineDied", message=message)


def _resumes(snapshot: Snapshot) -> dict[str, Resume]:
    tiers = snapshot.resume_tiers
    return {name: Resume(seconds, tiers.get(name, "none")) for name, seconds in snapshot.resume_seconds.items()}
