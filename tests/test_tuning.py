"""The bench of settings: a link delays and does not hold up, and a cell over links is measured."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from dataclasses import replace
from threading import Thread

import pytest

from bench.tuning.cell import LOOSE, Cell
from bench.tuning.link import Link
from bench.tuning.matrix import lines, near
from bench.tuning.measure import measured
from bench.tuning.place import Servers
from bench.tuning.report import tables

SECONDS = 0.2
"""Of a round trip over the link."""
MESSAGES = 200


def echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def test_a_link_delays_everything_and_holds_up_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        Thread(target=echo, args=(listener,), daemon=True).start()
        with (
            closing(Link(lambda: port, SECONDS)) as link,
            socket.create_connection(("127.0.0.1", link.port)) as end,
        ):
            began, sent = time.monotonic(), b""
            for number in range(MESSAGES):
                end.sendall(each := b"%4d" % number)
                sent += each
                time.sleep(SECONDS / MESSAGES / 2)
            received = end.recv(1)
            first = time.monotonic() - began
            while len(received) < len(sent):
                received += end.recv(1 << 16)
            assert received == sent
            assert first >= SECONDS
            # One after the other, each would wait for a whole round trip.
            assert time.monotonic() - began < SECONDS * MESSAGES / 4


def test_every_line_of_the_matrix_has_a_name_of_its_own() -> None:
    named = [(line.table, line.cell.delivery, line.label) for line in (*lines(), *near())]
    assert len(set(named)) == len(named)


@pytest.mark.slow
def test_a_cell_over_a_link_is_measured_beside_its_base() -> None:
    cell = replace(Cell(LOOSE, rows=2000), size=100).over(20)
    with Servers() as servers:
        servers.to_broker.seconds = 0.02
        base, few = (measured(servers, each) for each in (cell, cell.having({"maxInFlightRecords": 20})))
    assert few["/s"] < base["/s"] / 2
    assert base["p50 ms"] >= 20
    written = tables({"in flight": {"few": [{"it": dict(few), "base": dict(base)}]}})
    assert "| few |" in written
