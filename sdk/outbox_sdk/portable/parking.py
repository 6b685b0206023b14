"""Parks keys of a portable outbox: copies heads to the dead letters, within the database if it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outbox_sdk.parking import DeadLetterStatus, Poison
from outbox_sdk.portable.columns import COLUMNS
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.rows import octets, storable
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.statements import Statements


class Parking:
    """Parks over one connection, within the caller's transaction, which holds the fence.

    Args:
        session: The connection.
        sql: The statements of the outbox.
        name: The outbox's name in its fence.
    """

    def __init__(self, session: Session, sql: Statements, name: str) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._name = name

    def park(self, leader: object, poisons: Mapping[int, Poison]) -> int:
        """Copies heads to the dead letters; returns how many.

        Args:
            leader: The leader id that they must still carry; ``None`` if they need not carry any.
            poisons: Id → what is wrong with the head.
        """
        carried = {} if leader is None else {"leader": leader}
        find_keys = self._sql.carried_keys if carried else self._sql.head_keys
        find_rows = self._sql.carried_rows if carried else self._sql.heads
        found = self._session.fetch_by_ids(find_keys, list(poisons), **carried)
        heads = {int(row[0]): row[1] for row in found}
        self._make_room(heads)
        if self._sql.copy_head:
            letters = [self._letter(poisons[number]) for number in heads]
            self._session.execute_many(self._sql.copy_head, letters)
        else:
            rows = self._session.fetch_by_ids(find_rows, list(heads), **carried)
            letters = [{**self._letter(poisons[int(row[0])]), **copied(row, self._idiom)} for row in rows]
            self._session.execute_many(self._sql.write_letter, letters)
        return len(heads)

    def forget_skipped(self, age: float, limit: int) -> int:
        """Deletes letters that were skipped ``age`` seconds ago or earlier; returns how many."""
        skipped = {"name": self._name, "status": DeadLetterStatus.SKIPPED.value}
        found = self._session.fetch(self._sql.skipped, **skipped, age=age, limit=limit)
        return self._session.execute_by_ids(self._sql.drop_letters, [int(row[0]) for row in found], **skipped)

    def _make_room(self, heads: Mapping[int, object]) -> None:
        """Deletes dead letters of the same heads; those of other records with the same ids get new ids."""
        found = self._session.fetch_by_ids(self._sql.letters_at, list(heads), name=self._name)
        same = [
            int(number)
            for number, status, key in found
            if status == DeadLetterStatus.PARKED and key == heads[int(number)]
        ]
        self._session.execute_by_ids(self._sql.forget_letter, same, name=self._name)
        others = sorted({int(row[0]) for row in found}.difference(same))
        if not others:
            return
        [(lowest,)] = self._session.fetch(self._sql.lowest_letter, name=self._name)
        below = min(0, int(lowest)) - len(others)
        for place, number in enumerate(others):
            self._session.execute(self._sql.move_letter, name=self._name, id=number, other=below + place)

    def _letter(self, poison: Poison) -> dict[str, object]:
        return {
            "name": self._name,
            "id": poison.id,
            "status": DeadLetterStatus.PARKED.value,
            "reason": storable(poison.reason),
            "attempts": poison.attempts,
        }


def copied(row: Sequence[Any], idiom: Idiom) -> dict[str, object]:
    """Makes the parameters for a row of the outbox that is copied through the client."""
    values = dict(zip(COLUMNS, row, strict=False))
    return {**values, "kafka_value": octets(values["kafka_value"], idiom)}
