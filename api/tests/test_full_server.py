"""A server that has no connection left is not asked again and again."""

from __future__ import annotations

from contextlib import suppress

import pytest
from outbox_api import DriverError, ServerFull
from outbox_api.support.full_server import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Pace


class Server:
    """A server and its pace, on a clock that a test moves."""

    def __init__(self, vary: float = 1.0) -> None:
        self.now = 0.0
        self.full = False
        self.asked = 0
        self.pace = Pace("the server", lambda: self.now, lambda least, most: vary)

    def connect(self) -> bool:
        with suppress(ServerFull), self.pace.connecting():
            self._answer()
            return True
        return False

    def _answer(self) -> None:
        self.asked += 1
        if self.full:
            raise ServerFull("too many clients")


def test_with_room_nobody_waits() -> None:
    server = Server()
    assert all(server.connect() for _ in range(100))
    assert server.asked == 100


def test_a_full_server_is_asked_once_in_a_growing_pause() -> None:
    server = Server()
    server.full = True
    pause, asked = FIRST_PAUSE_SECONDS, 0
    while pause < LONGEST_PAUSE_SECONDS:
        assert not any(server.connect() for _ in range(50))
        asked += 1
        assert server.asked == asked, "the others are refused without a connection"
        server.now += pause
        pause *= 2
    server.full = False
    assert server.connect()


def test_once_there_is_room_all_connect_again() -> None:
    server = Server()
    server.full = True
    assert not server.connect()
    server.full = False
    server.now += FIRST_PAUSE_SECONDS
    assert all(server.connect() for _ in range(50))


def test_another_error_is_no_reason_to_wait() -> None:
    server = Server()
    for _ in range(2):
        with pytest.raises(DriverError, match="refused"), server.pace.connecting():
            raise DriverError("refused", retryable=True)
    assert server.connect()


@pytest.mark.parametrize("vary", [0.5, 1.5])
def test_the_longest_pause_varies_as_every_other_does(vary: float) -> None:
    server = Server(vary)
    server.full = True
    for asked in range(1, 11):
        assert not server.connect()
        assert server.asked == asked
        server.now += vary * min(2 ** (asked - 1) * FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


def test_whoever_finds_it_full_at_the_same_time_makes_the_pause_no_longer() -> None:
    server = Server()
    attempts = [server.pace.connecting() for _ in range(5)]
    for attempt in attempts:
        attempt.__enter__()
    for attempt in attempts:
        attempt.__exit__(ServerFull, ServerFull("too many clients"), None)
    server.now += FIRST_PAUSE_SECONDS
    assert server.connect()
