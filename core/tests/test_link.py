"""The link between a leader and lanes in other processes."""

from __future__ import annotations

import socket
import time
from multiprocessing import AuthenticationError

import pytest
from outbox_core.leash import Orders, Report
from outbox_core.link import LinkServer, RemoteLink
from outbox_core.meter import Reading
from outbox_core.term import Term


@pytest.fixture
def server():
    server = LinkServer("127.0.0.1")
    yield server
    server.close()


def report(run="a", token=7, **more):
    return Report(token, group=0, run=run, readings={0: Reading(purged=1)}, **more)


def test_a_report_is_answered_by_the_term(server):
    term = Term(7, lambda: 3.0)
    server.serve(term)
    with RemoteLink(server.address) as link:
        assert link.exchange(report()) == Orders(3.0)
        term.drain()
        assert link.exchange(report()) == Orders(3.0, draining=True)
    assert term.reading().purged == 1


def test_a_link_dials_anew_after_it_broke(server):
    server.serve(Term(7, lambda: 3.0))
    link = RemoteLink(server.address)
    link.exchange(report())
    link.close()
    assert link.exchange(report()) == Orders(3.0)
    link.close()


def test_without_the_secret_nothing_is_read(server, caplog):
    server.serve(Term(7, lambda: 3.0))
    host, port, secret = server.address
    with pytest.raises(AuthenticationError):
        RemoteLink((host, port, secret[::-1])).exchange(report())
    give_up = time.monotonic() + 5
    while "refused" not in caplog.text:  # the server says so on a thread of its own
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert secret.hex() not in caplog.text


def test_a_silent_peer_keeps_nobody_out(server):
    server.serve(Term(7, lambda: 3.0))
    host, port, _ = server.address
    with socket.create_connection((host, port)), RemoteLink(server.address) as link:
        assert link.exchange(report()) == Orders(3.0)


def test_an_older_run_of_a_group_is_told_to_end():
    term = Term(7, lambda: 3.0)
    term.exchange(report("old"))
    assert term.exchange(report("new")) == Orders(3.0)
    assert term.exchange(report("old")).stopped
    assert not term.exchange(report("new")).stopped
    assert term.reading().purged == 2, "what the older run did still counts"


def test_a_group_of_an_earlier_term_is_told_to_end_and_counts_for_nothing():
    term = Term(8, lambda: 3.0)
    term.exchange(report(token=8))
    assert term.exchange(report("old", token=7, lost="token 8 is in the fence")).stopped
    assert not term.stopped
    assert not term.exchange(report(token=8)).stopped
    assert term.reading().purged == 1


def test_a_lane_that_finds_another_leader_stops_them_all():
    term = Term(7, lambda: 3.0)
    assert term.exchange(report(lost="token 8 is in the fence")).stopped
    assert term.lost == "token 8 is in the fence"
    assert term.stopped
