"""A session after a failover: the server is read-only, or another one has its name, or it is gone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from outbox_mysql import connection as connections
from outbox_servers.services.external import connect_mysql
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, Hand


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


@pytest.fixture
def hand(under: OutboxUnderTest) -> Iterator[Hand]:
    with ExitStack() as stack:
        box = Box(under, stack)
        box.dialect.create()
        yield box.lead()


@pytest.fixture
def root(under: OutboxUnderTest) -> Iterator[Any]:
    with closing(connect_mysql(under.options["data_source"].partition("?")[0], autocommit=True)) as made:
        cursor = made.cursor()
        yield cursor
        cursor.execute("SET GLOBAL read_only = 0")


def session(hand: Hand) -> Any:
    table: Any = hand.table
    return table._session.connection


def test_a_lane_that_finds_nothing_leaves_a_server_that_has_become_read_only(
    hand: Hand, root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.1)
    assert hand.mark() == []
    first = session(hand).thread_id()
    time.sleep(0.2)
    hand.mark()
    assert session(hand).thread_id() == first
    root.execute("SET GLOBAL read_only = 1")
    time.sleep(0.2)
    hand.mark()
    assert session(hand).thread_id() != first


def test_a_session_asks_seldom_whether_its_server_takes_writes(
    hand: Hand, root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_SECONDS", 3600.0)
    first = session(hand).thread_id()
    root.execute("SET GLOBAL read_only = 1")
    for _ in range(20):
        hand.mark()
    assert session(hand).thread_id() == first


def test_tcp_notices_a_host_that_is_gone(hand: Hand) -> None:
    at = session(hand)._sock
    assert at.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
    assert at.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5


def test_a_name_is_resolved_anew_at_each_connect(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    resolve = socket.getaddrinfo

    def note(host: object, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return resolve(host, *arguments, **options)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(socket, "getaddrinfo", note)
    for _ in range(2):
        session(hand).close()
        session(hand).connect()
    assert len(asked) == 2
