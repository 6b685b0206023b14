"""What a stranger on the network can do to the link between a leader and its lanes."""

from __future__ import annotations

import math
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import get_args
from uuid import UUID

import pytest
from outbox_api import AccessDenied, CheckpointLost, DriverError
from outbox_core.control import protocol
from outbox_core.control.protocol import LogLine, Orders, Refusal, Report
from outbox_core.control.tcp import ControlClient, ControlServer
from outbox_core.control.wire import NotAuthentic, Wire
from outbox_core.events import AttemptSettled, BatchMoved, LaneEvent, LeaderRefreshed, TakeoverBegan
from outbox_core.events.metrics import LaneMetrics
from outbox_core.events.stages import BatchStage
from outbox_core.leadership.leader import Leadership

SECRET = b"of both"
EVENTS = (
    LeaderRefreshed(UUID(int=7), 1),
    BatchMoved(1, 9, 3, BatchStage.PURGED, 2),
    TakeoverBegan(2, 1, deliberate=True),
    AttemptSettled(1, 9, 3, 1, 4),
)
REPORT = Report(
    7,
    1,
    "a",
    {0: LaneMetrics(purged=3, blocked_seconds=0.5)},
    EVENTS,
    "lost",
    Refusal.of(AccessDenied("no DELETE")),
    (LogLine(30, "lanes", "é 3", "é %d", "Traceback", {"lane": 3, "error": "ö"}),),
    "shop",
)


class Sockets:
    """Two ends of a connection with somebody between them."""

    def __init__(self) -> None:
        self.leader, self.to_leader = socket.socketpair()
        self.group, self.to_group = socket.socketpair()

    def close(self) -> None:
        for each in (self.leader, self.to_leader, self.group, self.to_group):
            each.close()

    def relay(self, look: Callable[[bytes], bytes]) -> None:
        """Passes on all that the ends send, and looks at what the group sends."""
        pairs = ((self.to_leader, self.to_group, bytes), (self.to_group, self.to_leader, look))
        for pair in pairs:
            threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, look: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            while message := source.recv(1 << 20):
                sink.sendall(look(message))


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with closing(Sockets()) as sockets:
        yield sockets


def ends(sockets: Sockets) -> tuple[Wire, Wire]:
    leader, group = Wire(sockets.leader, b"leader", SECRET), Wire(sockets.group, b"group", SECRET)
    for wire in (leader, group):
        wire.allow(60)
    return leader, group


def shake(leader: Wire, group: Wire) -> None:
    thread = threading.Thread(target=group.shake_hands)
    thread.start()
    leader.shake_hands()
    thread.join()


def test_messages_arrive_through_a_relay_that_changes_nothing(sockets: Sockets) -> None:
    sockets.relay(bytes)
    leader, group = ends(sockets)
    shake(leader, group)
    for text in (b"", b"one", b"two"):
        group.send(text)
        assert leader.receive() == text


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda message: [message[:-1] + bytes([message[-1] ^ 1])], id="changed"),
        pytest.param(lambda message: [message, message], id="repeated"),
        pytest.param(lambda _: [], id="left out"),
    ],
)
def test_a_message_that_was_tampered_with_is_refused(
    sockets: Sockets, change: Callable[[bytes], list[bytes]]
) -> None:
    sockets.relay(bytes)
    leader, group = ends(sockets)
    shake(leader, group)
    write, sent = group._write, []

    def tamper(message: bytes) -> None:
        sent.append(message)
        for each in change(message) if len(sent) == 1 else [message]:
            write(each)

    group._write = tamper  # type: ignore[method-assign]
    for text in (b"one", b"two"):
        group.send(text)
    received: list[bytes] = []
    with pytest.raises(NotAuthentic):
        received.extend(iter(leader.receive, b""))
    assert received in ([], [b"one"]), "what is received was sent, and in order"


def test_a_message_that_is_too_long_is_refused_before_it_is_read(sockets: Sockets) -> None:
    sockets.relay(bytes)
    leader, group = ends(sockets)
    shake(leader, group)
    group.send(b"long")
    with pytest.raises(NotAuthentic, match="a message of 4 bytes, where 3 are allowed"):
        leader.receive(3)


def test_what_a_group_has_sent_is_no_proof_for_a_leader() -> None:
    """A false leader sends back to a group what that, or another group, has sent."""
    with closing(Sockets()) as victim:
        group = Wire(victim.group, b"group", SECRET)
        group.allow(60)

        def reflect() -> None:
            with suppress(OSError):
                while message := victim.to_group.recv(1 << 20):
                    victim.to_group.sendall(message)

        threading.Thread(target=reflect, daemon=True).start()
        with pytest.raises(NotAuthentic):
            group.shake_hands()


def test_a_proof_of_one_connection_is_none_in_another() -> None:
    first, second = Sockets(), Sockets()
    with closing(first), closing(second):
        recorded: list[bytes] = []

        def record(message: bytes) -> bytes:
            recorded.append(message)
            return message

        first.relay(record)
        shake(*ends(first))
        leader, _ = ends(second)
        for message in recorded:
            second.to_leader.sendall(message)
        with pytest.raises(NotAuthentic):
            leader.shake_hands()


class Bomb:
    """Would make a folder in whoever unpickles it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def test_even_who_knows_the_secret_sends_nothing_but_data(tmp_path: Path) -> None:
    server = ControlServer("127.0.0.1")
    with closing(server):
        server.serve(Leadership(7, lambda: 3.0))
        host, port, secret = server.address
        with socket.create_connection((host, port)) as peer:
            wire = Wire(peer, b"group", secret)
            wire.allow(60)
            wire.shake_hands()
            wire.send(pickle.dumps(Bomb(tmp_path / "made")))
            with pytest.raises((EOFError, OSError)):
                wire.receive()
        with ControlClient(server.address) as client:
            assert client.exchange(Report(7, 0, "a", {})) == Orders(3.0)
    assert not (tmp_path / "made").exists()


def test_reports_and_orders_arrive_as_they_were() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(LaneEvent))
    assert protocol.decode(Report, protocol.encode(REPORT)) == REPORT
    assert protocol.decode(Orders, protocol.encode(Orders(math.inf, draining=True))) == Orders(
        math.inf, draining=True
    )


def test_a_log_line_that_is_no_unicode_ends_no_lane() -> None:
    report = Report(7, 0, "a", {}, lost="\udc80", messages=(LogLine(30, "a", "key \ud800"),))
    read = protocol.decode(Report, protocol.encode(report))
    assert (read.lost, read.messages) == ("?", (LogLine(30, "a", "key ?"),))


def test_a_refusal_is_the_same_error_at_the_other_end() -> None:
    for error in (DriverError("away", retryable=True), AccessDenied("no DELETE"), CheckpointLost("gone")):
        made = Refusal.of(error).error
        assert isinstance(error, type(made))
        assert (str(made), made.retryable, made.code) == (str(error), error.retryable, error.code)


def test_a_malformed_message_is_refused_and_not_shown() -> None:
    for text in (b"", b"[]", b'{"token": "hush"}'):
        with pytest.raises(ConnectionError) as refused:
            protocol.decode(Report, text)
        assert "hush" not in str(refused.value)


def test_the_port_is_open_where_workers_connect_and_nowhere_else() -> None:
    refused = 0
    for _ in range(3):  # another program may listen there at the port of one of them
        with closing(ControlServer("127.0.0.2")) as server:
            _, port, _ = server.address
            with ControlClient(server.address) as client:
                client.connect()
            try:
                socket.create_connection(("127.0.0.1", port), 60).close()
            except ConnectionRefusedError:
                refused += 1
    assert refused


OUT_OF_DESCRIPTORS = """
    import os, resource, socket, time
    from outbox_core.leadership.leader import Leadership
    from outbox_core.control.protocol import Report
    from outbox_core.control.tcp import ControlClient, ControlServer

    server = ControlServer("127.0.0.1")
    server.serve(Leadership(7, lambda: 3.0))
    with ControlClient(server.address) as client:
        client.exchange(Report(7, 0, "a", {}))
        host, port, _ = server.address
        strangers = [socket.socket() for _ in range(20)]
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))
        for stranger in strangers:
            stranger.connect((host, port))
        before = time.process_time()
        time.sleep(2)
        busy = time.process_time() - before
        client.exchange(Report(7, 0, "a", {}))
        print("busy" if busy > 1 else "calm")
    os._exit(0)
"""


def test_without_file_descriptors_the_leader_neither_spins_nor_forgets_its_lanes() -> None:
    program = [sys.executable, "-c", textwrap.dedent(OUT_OF_DESCRIPTORS)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False)
    assert ended.stdout == "calm\n", ended.stderr
