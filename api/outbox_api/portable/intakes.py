"""Moves rows of other tables into a portable outbox, while the caller's token is the fence's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from outbox_api.base.errors import DriverError, LeadershipLost
from outbox_api.intake.intake import Intake
from outbox_api.intake.intakes import IntakeState
from outbox_api.portable.intake import PortableIntake
from outbox_api.portable.moving import Mover
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements


class Connected(NamedTuple):
    """A connection over which rows are moved.

    Attributes:
        session: The connection.
        sql: The statements of the outbox.
        name: The outbox's name in its fence.
        look: Looks at a table; raises a ``DriverError`` if its rows cannot be taken in.
    """

    session: Session
    sql: Statements
    name: str
    look: Callable[[Intake], PortableIntake]


class PortableIntakes:
    """The ``Intakes`` of a portable outbox.

    Args:
        connect: Connects.
        intakes: The tables, in the order of their turns.
    """

    def __init__(self, connect: Callable[[], Connected], intakes: Iterable[Intake]) -> None:
        self._connect = connect
        self._movers = {intake.table: (intake, Mover(intake.table)) for intake in intakes}
        self._connected: Connected | None = None
        self._looked: dict[str, PortableIntake] = {}

    def require(self) -> None:
        """Makes sure that rows of all tables can be taken in."""
        connected = self._present()
        for intake, _ in self._movers.values():
            self._looked[intake.table] = connected.look(intake)

    def take(self, token: int, max_bytes: int) -> bool:
        """Moves a portion of each table."""
        failure: DriverError | None = None
        goes_on = False
        for intake, mover in self._movers.values():
            try:
                connected = self._present()
                looked = self._looked.get(intake.table) or connected.look(intake)
                self._looked[intake.table] = looked
                goes_on |= mover.take(looked, partial(_hold, connected, token), max_bytes)
            except DriverError as error:
                mover.failed(error)
                failure = failure or error
                self._looked.pop(intake.table, None)
                if error.retryable:
                    self.close()
        if failure:
            raise failure
        return goes_on

    def states(self) -> Sequence[IntakeState]:
        """Returns what is to be said of each table."""
        return [mover.state() for _, mover in self._movers.values()]

    def close(self) -> None:
        """Disconnects; the next call connects anew."""
        self._looked.clear()
        connected, self._connected = self._connected, None
        if connected:
            with suppress(Exception):
                connected.session.close()

    def _present(self) -> Connected:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected


def _hold(on: Connected, token: int) -> None:
    """Holds what every bump holds first, and compares the token; part of a transaction."""
    on.session.fetch(on.sql.hold_note, name=on.name)
    if max((row[1] for row in on.session.fetch(on.sql.tokens, name=on.name)), default=0) != token:
        raise LeadershipLost("another process has raised the fence")
