"""Dead letters of a portable outbox: parks keys, and lists, retries, skips and redrives what is parked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from outbox_api.base.record import MarkedRecord
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.notes import ensure_identity
from outbox_api.portable.rows import octets, record, storable
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS
from outbox_api.portable.statements import Statements
from outbox_api.portable.tables import Tables
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus, Poison, listed


class Parking:
    """Parks over one connection, within the caller's transaction, which holds the fence."""

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._name = sql.name

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


class PortableDeadLetters:
    """An operator's connection to the dead letters of one outbox; used by one thread.

    ``retry``, ``skip`` and ``redrive`` are durable when they return, and change all of their dead letters
    or none. They may be called while a leader harvests; its next mark sees the change. A dead letter that
    is gone, or no longer in the required state, is left out. Each returns the ids of the dead letters that
    it changed, ordered.

    Every method raises ``DriverError`` if the database refuses or cannot be reached.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
        binary: Whether the outbox keeps values as bytes; the letters do in any case.
    """

    def __init__(self, session: Session, tables: Tables, *, binary: bool) -> None:
        self._session = session
        self._idiom = session.idiom
        self._binary = binary
        self._sql = Statements(session.idiom, tables)
        self._name = self._sql.name

    def find(
        self,
        keys: Sequence[str] = (),
        status: DeadLetterStatus | None = None,
        *,
        ids: Collection[int] | None = None,
        whole: bool = True,
    ) -> list[DeadLetter]:
        """Returns dead letters, ordered by id.

        Args:
            keys: The keys, whole; none means all.
            status: In which state; ``None`` means both.
            ids: Which of them; ``None`` means all.
            whole: Whether to return all of each record, which may be large. If not, values are ``None``,
                headers are left out, and topics and keys are as :func:`listed` says.
        """
        rows = self._rows(ids, whole=whole)
        letters = []
        for row in rows:
            state, reason, attempts, since, age = row[6:]
            found = self._record(row)
            if (keys and found.key not in keys) or status not in {None, DeadLetterStatus(state)}:
                continue
            letters.append(
                DeadLetter(
                    record=found if whole else listed(found),
                    reason=self._idiom.read_text(reason) or "",
                    attempts=int(attempts),
                    since=self._idiom.read_timestamp(since),
                    age=float(age),
                    status=DeadLetterStatus(state),
                )
            )
        return letters

    def waiting(self, key: str) -> int:
        """Returns how many rows of a key the outbox holds, its head included. May read the whole table."""
        with self._session.transaction("count the rows of a key", reads=True):
            return int(self._session.fetch(self._sql.waiting, key=key)[0][0])

    def retry(self, ids: Sequence[int]) -> list[int]:
        """Frees the keys of parked letters: their heads are marked again, as the rows are by now.

        The letters are deleted. A head that fails again is parked again, its attempts counted anew.
        """
        with self._released("retry dead letters"):
            return self._drop(ids, DeadLetterStatus.PARKED)

    def skip(self, ids: Sequence[int]) -> list[int]:
        """Deletes the heads of parked letters from the outbox and frees their keys.

        The letters stay as ``skipped``, holding the head as its row was at this moment. A head whose row has
        another key by now is left where it is, as it flows with that key, and its letter is deleted.
        """
        with self._released("skip dead letters"):
            parked = {"name": self._name, "status": DeadLetterStatus.PARKED.value}
            chosen = self._session.fetch_by_ids(self._sql.chosen_keys, ids, **parked)
            letters = {int(number): key for number, key in chosen}
            rows = self._session.fetch_by_ids(self._sql.head_keys, list(letters))
            heads = {int(number): key for number, key in rows}
            # A row that has another key by now is no longer the head, and may be under way.
            strange = [number for number, key in heads.items() if key != letters[number]]
            own = [number for number in heads if number not in strange]
            self._session.execute_by_ids(self._sql.drop_letters, strange, **parked)
            self._copy(own)
            gone = [number for number in letters if number not in heads]
            self._session.execute_by_ids(self._sql.skip_gone, gone, **parked)
            self._session.execute_by_ids(self._sql.remove, own)
            return sorted(letters)

    def redrive(self, ids: Sequence[int]) -> list[int]:
        """Stashes skipped letters again, in the order of their ids, and deletes the letters.

        They take new ids and thus their place behind everything that their keys have in the outbox. What
        a row held beyond topic, key, value and headers is not restored.
        """
        with self._released("redrive dead letters"):
            restore = self._sql.restore(binary=self._binary)
            columns = self._sql.chosen_heads if restore else self._sql.chosen
            skipped = {"name": self._name, "status": DeadLetterStatus.SKIPPED.value}
            rows = self._session.fetch_by_ids(columns, ids, **skipped)
            for row in sorted(rows, key=lambda row: int(row[0])):
                values = dict(zip(COLUMNS, row, strict=True))
                values["kafka_key"] = _key(values["kafka_key"])
                values["kafka_value"] = self._value(values["kafka_value"])
                self._session.execute(restore or self._sql.stash, name=self._name, **values)
            return self._drop(ids, DeadLetterStatus.SKIPPED)

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _rows(self, ids: Collection[int] | None, *, whole: bool) -> Sequence[Sequence[Any]]:
        with self._session.transaction("read the dead letters", reads=True):
            if ids is None:
                statement = self._sql.list_whole if whole else self._sql.list_short
                return self._session.fetch(statement, name=self._name)
            chosen = self._sql.whole_letters if whole else self._sql.short_letters
            return self._session.fetch_by_ids(chosen, sorted(ids), name=self._name)

    @contextmanager
    def _released(self, doing: str) -> Iterator[None]:
        """Begins a transaction during which no mark and no park is under way, and no leader is being made."""
        ensure_identity(self._session, self._sql)
        with self._session.transaction(doing):
            # The row of notes, which bumps lock first: two that lock several rows might wait for each other.
            self._session.fetch(self._sql.hold_note, name=self._name)
            self._session.fetch(self._sql.hold_lanes, name=self._name)
            yield

    def _copy(self, heads: Sequence[int]) -> None:
        """Writes rows of the outbox, as they are by now, into their letters, which become skipped."""
        if self._sql.copy_skipped:
            rows: list[dict[str, object]] = [{"id": number} for number in heads]
        else:
            rows = [copied(row, self._idiom) for row in self._session.fetch_by_ids(self._sql.heads, heads)]
        for row in rows:
            self._session.execute(self._sql.copy_skipped or self._sql.skip, name=self._name, **row)

    def _drop(self, ids: Sequence[int], status: DeadLetterStatus) -> list[int]:
        chosen = self._session.fetch_by_ids(self._sql.chosen_keys, ids, name=self._name, status=status.value)
        found = sorted(int(row[0]) for row in chosen)
        self._session.execute_by_ids(self._sql.drop_letters, found, name=self._name, status=status.value)
        return found

    def _record(self, row: Sequence[Any]) -> MarkedRecord:
        found = self._read(row)
        if self._binary or not isinstance(found.value, bytes):
            return found
        return found._replace(value=found.value.decode(errors="replace"))

    def _read(self, row: Sequence[Any]) -> MarkedRecord:
        return record(row, self._idiom)

    def _value(self, value: object) -> str | bytes | None:
        read = self._idiom.read_value(value)
        return read.decode(errors="replace") if isinstance(read, bytes) and not self._binary else read


def _key(key: Any) -> object:
    """Returns a key as text where it is one: so it can go into a column of either."""
    if not isinstance(key, bytes):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
