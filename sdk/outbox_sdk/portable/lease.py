"""The lease of a portable outbox: one more row of its fence."""

from __future__ import annotations

from outbox_sdk.portable.columns import LEASE
from outbox_sdk.portable.session import AlreadyExists, Session
from outbox_sdk.portable.statements import Statements
from outbox_sdk.portable.table import new_lane

_MS = 1000


class PortableLease:
    """The ``Lease`` of a portable outbox.

    Its row says when it was taken (``since``), for how many milliseconds (``token``), by whom (``holder``),
    and the number of the term (``epoch``).

    Args:
        session: The connection.
        sql: The statements of the outbox.
        name: The outbox's name in its fence.
    """

    def __init__(self, session: Session, sql: Statements, name: str) -> None:
        self._session = session
        self._sql = sql
        self._name = name

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own."""
        wanted = {"name": self._name, "holder": holder, "length": round(seconds * _MS)}
        with self._session.transaction("take the lease"):
            rows = self._session.fetch(self._sql.lease, name=self._name)
            if rows:
                [(former, age, length, term)] = rows
                # One that was released is free whatever the clock has done since.
                if former != holder and int(length) >= 0 and float(age) * _MS <= int(length):
                    return None
                term = int(term) + int(former != holder)
                self._session.execute(self._sql.renew_lease, **wanted, term=term)
                return term
        try:
            with self._session.transaction("make the lease"):
                lane = new_lane(self._name, LEASE, holder)
                self._session.execute(self._sql.make_lane, **{**lane, "token": wanted["length"]})
        except AlreadyExists:
            return None  # another process was first
        return 0

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it."""
        with self._session.transaction("release the lease"):
            self._session.execute(self._sql.release_lease, name=self._name, holder=holder)

    def close(self) -> None:
        """Disconnects."""
        self._session.close()
