"""The link between a leader and lanes in other processes."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_core.control import tcp as channel
from outbox_core.control.protocol import Orders, Report
from outbox_core.control.tcp import ControlClient, ControlServer
from outbox_core.control.wire import Wire
from outbox_core.events.metrics import LaneMetrics
from outbox_core.lanes import group, threads
from outbox_core.leadership.leader import Leadership
from outbox_core.settings import Failures, Limits
from outbox_core.settings.logs import KeyNames

from .cli_runner import until


def peers():
    return [thread for thread in threading.enumerate() if thread.name == "control-peer"]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(channel, "ACCEPT_SECONDS", 0.05)  # so long a server takes to end
    server = ControlServer("127.0.0.1")
    yield server
    server.close()
    until(lambda: not peers())  # which close their connections on their own: other tests count that


def report(incarnation="a", token=7, **more):
    return Report(token, group=0, incarnation=incarnation, metrics_by_lane={0: LaneMetrics(purged=1)}, **more)


def test_a_report_is_answered_by_the_term(server):
    leadership = Leadership(7, lambda: 3.0)
    server.serve(leadership)
    with ControlClient(server.address) as channel:
        assert channel.exchange(report()) == Orders(3.0)
        leadership.drain()
        assert channel.exchange(report()) == Orders(3.0, draining=True)
    assert leadership.metrics().purged == 1


def test_a_link_dials_anew_after_it_broke(server):
    server.serve(Leadership(7, lambda: 3.0))
    channel = ControlClient(server.address)
    channel.exchange(report())
    channel.close()
    assert channel.exchange(report()) == Orders(3.0)
    channel.close()


def test_without_the_secret_nothing_is_read(server, caplog):
    server.serve(Leadership(7, lambda: 3.0))
    host, port, secret = server.address
    with pytest.raises(ConnectionError):
        ControlClient((host, port, secret[::-1])).exchange(report())
    until(lambda: "refused" in caplog.text)  # the server says so on a thread of its own
    assert secret.hex() not in caplog.text


def test_a_silent_peer_keeps_nobody_out(server):
    server.serve(Leadership(7, lambda: 3.0))
    host, port, _ = server.address
    with socket.create_connection((host, port)), ControlClient(server.address) as channel:
        assert channel.exchange(report()) == Orders(3.0)


def test_many_silent_peers_keep_nobody_out_and_hold_few_threads(server):
    server.serve(Leadership(7, lambda: 3.0))
    host, port, _ = server.address
    with ExitStack() as open_:
        with ControlClient(server.address) as busy:
            busy.exchange(report())
            for _ in range(3 * channel.MAX_UNAUTHENTICATED):
                open_.enter_context(socket.create_connection((host, port)))
            with ControlClient(server.address) as newcomer:
                assert newcomer.exchange(report()) == Orders(3.0)
            assert busy.exchange(report()) == Orders(3.0), "who has shown the secret stays"
        # Those that were hung up on end on their own.
        until(lambda: len(peers()) <= channel.MAX_UNAUTHENTICATED)


def test_a_connection_is_closed_by_the_thread_that_reads_it(server, monkeypatch):
    """Otherwise the next one may get its descriptor, and that thread would read what belongs to the next."""
    closed_by, close = [], Wire.close

    def tell(wire):
        closed_by.append(threading.current_thread().name)
        close(wire)

    monkeypatch.setattr(Wire, "close", tell)
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 3600.0)
    connections = channel.MAX_UNAUTHENTICATED + 3
    with ExitStack() as open_:
        for _ in range(connections):
            open_.enter_context(socket.create_connection(server.address[:2]))
        until(lambda: len(closed_by) >= 3)
        server.close()
        until(lambda: len(closed_by) == connections)
    assert set(closed_by) == {"control-peer"}


def test_a_silent_peer_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    host, port, _ = server.address
    with socket.create_connection((host, port), 60) as silent:
        while silent.recv(1024):  # the challenge, then the end
            pass


def test_a_peer_that_trickles_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.5)
    host, port, _ = server.address
    give_up = time.monotonic() + 60
    with socket.create_connection((host, port), 60) as slow, suppress(BrokenPipeError, ConnectionResetError):
        while True:
            slow.sendall(b"\0")
            assert time.monotonic() < give_up
            time.sleep(0.05)


def test_a_stranger_cannot_have_much_read(server, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 3600.0)
    host, port, _ = server.address
    with socket.create_connection((host, port), 60) as stranger, suppress(ConnectionResetError):
        stranger.sendall(bytes(32) + (1 << 31).to_bytes(4))
        while stranger.recv(1024):  # the challenge, then the end, long before a silent one is hung up on
            pass


def test_a_peer_that_has_nothing_more_to_say_is_hung_up_on(server, monkeypatch):
    monkeypatch.setattr(channel, "IDLE_SECONDS", 1.0)
    server.serve(Leadership(7, lambda: 3.0))
    with ControlClient(server.address) as idle:
        idle.exchange(report())
        until(lambda: not peers())
        with pytest.raises((OSError, EOFError)):
            idle.exchange(report())
        monkeypatch.setattr(channel, "IDLE_SECONDS", 60.0)
        assert idle.exchange(report()) == Orders(3.0), "it dials anew"


@pytest.fixture
def frozen():
    """A leader whose machine takes connections, as those of a stopped process do, and who says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield *listener.getsockname(), b"secret"


def test_a_frozen_leader_holds_up_no_group(frozen, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    remote = ControlClient(frozen)
    for _ in range(3):  # at first, and again after each time-out
        with pytest.raises(ConnectionError, match="cannot reach the leader"):
            remote.exchange(report())


def test_a_leader_who_freezes_while_a_group_works_holds_up_no_group(server, monkeypatch):
    woken = threading.Event()
    server.serve(SimpleNamespace(exchange=lambda _: Orders(float(woken.wait(60)))))
    with ControlClient(server.address) as remote:
        remote.connect()
        monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
        with pytest.raises(TimeoutError):
            remote.exchange(report())
    woken.set()


def test_an_orphan_ends_though_its_frozen_leader_takes_its_connections(frozen, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(group, "ORPHAN_SECONDS", 0.5)

    class Leader:
        """Vouches for a moment, then freezes."""

        remote = ControlClient(frozen)
        heard = 0

        def exchange(self, report):
            self.heard += 1
            return Orders(0.1) if self.heard <= 1 else self.remote.exchange(report)

    class Idle:
        """A lane that waits for the end."""

        def __init__(self, plan, number, control, telemetry, *, threads):
            self.control = control

        def run(self):
            while not self.control.over:
                time.sleep(0.01)

    monkeypatch.setattr(threads, "LaneRun", Idle)
    plan: Any = SimpleNamespace(token=7, failures=Failures(), limits=Limits(), key_names=KeyNames())
    working = threading.Thread(target=threads.run_group, args=(plan, 0, [0], Leader()))
    working.start()
    working.join(60)
    assert not working.is_alive()


def test_a_leader_out_of_reach_is_named_in_time(monkeypatch):
    monkeypatch.setattr(channel, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as open_:
        address = full.getsockname()
        for _ in range(4):  # the machine takes one or two that nobody accepts; of the others it says nothing
            queued = open_.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(address)
        time.sleep(0.1)
        with pytest.raises(ConnectionError, match=f"cannot reach the leader at 127.0.0.1:{address[1]}"):
            ControlClient((*address, b"secret")).connect()


def test_a_client_connects_before_any_leadership(server):
    with ControlClient(server.address) as client:
        client.connect()
        with pytest.raises((OSError, EOFError)):
            client.exchange(report())


def test_a_port_that_was_chosen_is_free_again_for_the_next_server():
    first = ControlServer("127.0.0.1")
    _, port, _ = first.address
    with pytest.raises(OSError, match="in use"):
        ControlServer("127.0.0.1", port)
    first.serve(Leadership(7, lambda: 3.0))
    with ControlClient(first.address) as remote:
        remote.exchange(report())
        first.close()
        second = ControlServer("127.0.0.1", port)
        assert second.address[:2] == ("127.0.0.1", port)
        second.close()
        with pytest.raises((OSError, EOFError)):
            remote.exchange(report())


def test_an_older_run_of_a_group_is_told_to_end():
    leadership = Leadership(7, lambda: 3.0)
    leadership.exchange(report("old"))
    assert leadership.exchange(report("new")) == Orders(3.0)
    assert leadership.exchange(report("old")).stopped
    assert not leadership.exchange(report("new")).stopped
    assert leadership.metrics().purged == 2, "what the older incarnation did still counts"


def test_a_group_of_an_earlier_term_is_told_to_end_and_counts_for_nothing():
    leadership = Leadership(8, lambda: 3.0)
    leadership.exchange(report(token=8))
    assert leadership.exchange(report("old", token=7, lost="token 8 is in the fence")).stopped
    assert not leadership.stopped
    assert not leadership.exchange(report(token=8)).stopped
    assert leadership.metrics().purged == 1


def test_a_lane_that_finds_another_leader_stops_them_all():
    leadership = Leadership(7, lambda: 3.0)
    assert leadership.exchange(report(lost="token 8 is in the fence")).stopped
    assert leadership.lost == "token 8 is in the fence"
    assert leadership.stopped
