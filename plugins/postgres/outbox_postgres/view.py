"""One connection that looks at an outbox: its lanes, its backlog, what is parked and taken over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from outbox_sdk import (
    Backlog,
    Fence,
    LaneStatus,
    Origin,
    OriginBacklog,
    Parked,
    Takeover,
    TransactionalLane,
    Upkeep,
)
from outbox_sdk.backlog import MAX_COUNTED
from outbox_sdk.fence import IDENTITY_DIGITS
from outbox_sdk.portable.members import MemberRow, present

from outbox_postgres import statements
from outbox_postgres.clusters import Clusters
from outbox_postgres.intake import WaitingIntake
from outbox_postgres.layout import Layout
from outbox_postgres.members import members_query
from outbox_postgres.parking_statements import ParkingStatements
from outbox_postgres.session import Session
from outbox_postgres.upkeep import read_upkeep
from outbox_postgres.waiting import WaitingRows


class PostgresView:
    """The ``OutboxView`` of PostgreSQL. Made by ``PostgresDialect.watch``.

    Args:
        session: The connection.
        layout: The outbox as found.
        intake: The rows that are still to be taken in, if any ever are.
        origin: How rows tell where they were written, if they do.
    """

    def __init__(
        self, session: Session, layout: Layout, *, intake: WaitingIntake | None, origin: Origin | None
    ) -> None:
        self._session = session
        self._layout = layout
        tables = (layout.outbox, layout.fence, layout.dead_letters)
        self._sql = statements.Statements(*tables)
        self._parking = ParkingStatements(*tables, binary=layout.binary)
        self._waiting = WaitingRows(session, layout, self._sql)
        self._untaken = intake
        self._clusters = Clusters(session, layout, origin)

    @property
    def name(self) -> str:
        """The outbox's name with its schema, as the rows of its auxiliary tables carry it."""
        return self._layout.name

    def known_identity(self) -> str | None:
        """Returns the outbox's identity, if it has been created."""
        rows = self._session.fetch(self._sql.identity, (self._layout.name,), "read the outbox's identity")
        return digits(rows[0][0]) if rows else None

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        """Returns the lanes that publish in transactions, with what is stored about them."""
        doing = "read who publishes in transactions"
        rows = self._session.fetch(self._sql.transactional_lanes, (self._layout.name,), doing)
        return {lane: TransactionalLane(*note) for lane, *note in rows}

    def parked(self) -> Parked:
        """Returns how much is parked, read through an index that holds nothing else."""
        rows = self._session.fetch(self._parking.parked, (self._layout.name,), "read the parked keys")
        keys, oldest = rows[0]
        return Parked(keys=keys, oldest=oldest)

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns what the fence stores about each lane."""
        return [
            LaneStatus(
                fence=Fence(lane=lane, lanes=lanes, token=token, epoch=attempt),
                holder=holder,
                since=since,
                heartbeat_at=heartbeat_at,
                age=age,
                metrics=reading,
            )
            for lane, lanes, token, attempt, holder, since, heartbeat_at, age, reading in self._session.fetch(
                self._sql.lane_statuses, (self._layout.name,), "read the fence"
            )
        ]

    def members(self, group: str, seconds: float) -> Mapping[str, int]:
        """Returns the members of a group that are here."""
        rows = self._session.fetch(members_query(self._layout), (), "read the members")
        return present(map(MemberRow._make, rows), group, seconds)

    def backlog(self) -> Backlog:
        """Returns how many records wait: counted up to ``MAX_COUNTED``, estimated beyond.

        Rows that an intake has yet to take in count, and have no age.
        """
        to_take_in = self._untaken.waiting(MAX_COUNTED + 1) if self._untaken else 0
        return self._waiting.backlog(to_take_in)

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster wait."""
        return self._clusters.origins()

    def takeovers(self) -> list[Takeover]:
        """Returns the takeovers that have begun and not ended."""
        return self._clusters.takeovers()

    def upkeep(self) -> Upkeep:
        """Returns the outbox's dead rows, and the oldest snapshot that keeps them."""
        return read_upkeep(self._session, self._layout)

    def now(self) -> datetime:
        """Returns the present time by the database's clock."""
        return self._clusters.now()

    def close(self) -> None:
        """Disconnects."""
        self._session.connection.close()


def digits(identity: UUID) -> str:
    """Returns an identity as names carry it."""
    return identity.hex[:IDENTITY_DIGITS]
