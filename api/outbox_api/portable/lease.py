"""The lease of a portable outbox."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from outbox_api.election.lease_elector import LeaseWatch
from outbox_api.portable.session import AlreadyExists, Session
from outbox_api.portable.statements import Statements

_MS = 1000

_LOOK_SECONDS = 0.25
"""How often a standby looks, as the database does not tell it of a release."""


class PortableLease:
    """The ``WatchedLease`` of a portable outbox."""

    def __init__(self, session: Session, sql: Statements, watch: LeaseWatch | None = None) -> None:
        self._session = session
        self._statements = LeaseStatements(sql)
        self._name = sql.name
        self._held: int | None = None
        """The number of the leadership, if the last call took or renewed the lease."""
        self._watch = watch or LeaseWatch()
        self._left = 0.0
        """For how many seconds another process held the lease, at the last look."""

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own.

        A process that does not get it writes nothing and locks nothing.
        """
        wanted = {"name": self._name, "holder": holder, "length": round(seconds * _MS)}
        if self._held is None or not self._renew(wanted):
            self._held = self._take(wanted)
        return self._held

    def wait(self, seconds: float) -> None:
        """Waits until the lease has run out or may have been released, ``seconds`` at most."""
        time.sleep(max(0.0, min(seconds, self._left, _LOOK_SECONDS)))

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it."""
        self._held = None
        with self._session.transaction("release the lease"):
            self._session.execute(self._statements.release, name=self._name, holder=holder)

    def close(self) -> None:
        """Disconnects."""
        self._session.close()

    def _renew(self, wanted: Mapping[str, Any]) -> bool:
        with self._session.transaction("renew the lease"):
            return self._session.execute(self._statements.renew, **wanted) > 0

    def _take(self, wanted: Mapping[str, Any]) -> int | None:
        with self._session.transaction("look at the lease", reads=True):
            rows = self._session.fetch(self._statements.look, name=self._name)
        if not rows:
            return self._make(wanted)
        return None if self._is_anothers(rows[0], wanted) else self._take_free(wanted, rows[0])

    def _take_free(self, wanted: Mapping[str, Any], seen: Sequence[Any]) -> int | None:  # noqa: ARG002 - for subclasses
        """Takes the lease, which looked free, if it still is."""
        with self._session.transaction("take the lease"):
            [row] = self._session.fetch(self._statements.hold, name=self._name)
            if self._is_anothers(row, wanted):
                return None
            term = int(row[3]) + int(row[0] != wanted["holder"])
            self._session.execute(self._statements.take, **wanted, term=term)
            return term

    def _is_anothers(self, row: Sequence[Any], wanted: Mapping[str, Any]) -> bool:
        former, age, length, _, renewed_at = row
        seconds = int(length) / _MS
        unchanged = self._watch.left((former, renewed_at, length), max(seconds, int(wanted["length"]) / _MS))
        self._left = min(seconds - float(age), unchanged)
        # One that was released is free whatever the clock has done since.
        return former not in {None, wanted["holder"]} and self._left >= 0

    def _make(self, wanted: Mapping[str, Any]) -> int | None:
        try:
            with self._session.transaction("make the lease"):
                self._session.execute(self._statements.make, **wanted)
        except AlreadyExists:
            return None  # another process was first
        return 0


class LeaseStatements:
    """The statements about the lease of the outbox ``{name}``.

    Attributes:
        look: Returns holder, age, length in milliseconds, term, and when it was renewed.
        hold: As ``look``, and locks the row.
        make: Makes the row, which ``{holder}`` has, for ``{length}`` milliseconds.
        take: Makes ``{holder}`` the holder, for ``{length}`` milliseconds, with the number ``{term}``.
        renew: Makes the lease of ``{holder}`` begin anew.
        release: Ends the lease of ``{holder}``.
    """

    def __init__(self, sql: Statements) -> None:
        # ruff: noqa: S608 - the table's name is quoted, and every value is a parameter
        idiom, lease = sql.idiom, sql.lease
        named, own = "name = {name}", "name = {name} AND holder = {holder}"
        columns = f"holder, {idiom.age_seconds('renewed_at')}, length_ms, term, renewed_at"
        self.look = f"SELECT {columns} FROM {idiom.snapshot_read(lease)} WHERE {named}"
        self.hold = idiom.locking_select(columns, lease, named, idiom.exclusive_lock)
        self.make = (
            f"INSERT INTO {lease} (name, holder, term, length_ms, renewed_at)"
            f" VALUES ({{name}}, {{holder}}, 0, {{length}}, {idiom.now})"
        )
        renewed = f"renewed_at = {idiom.now}, length_ms = {{length}}"
        self.take = f"UPDATE {lease} SET holder = {{holder}}, term = {{term}}, {renewed} WHERE {named}"
        self.renew = f"UPDATE {lease} SET {renewed} WHERE {own}"
        self.release = f"UPDATE {lease} SET holder = NULL WHERE {own}"
