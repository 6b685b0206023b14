"""From which rows of an outbox one mark or selection takes: those that meet one condition (ADR 32)."""
# ruff: noqa: S608 - names are quoted, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from outbox_api import ColumnIs
from outbox_api.portable import TableName

from outbox_postgres.catalogue import SEQUENCE_OF
from outbox_postgres.options import quoted
from outbox_postgres.settled import FIRST, LAST

FIRST_PARAMETER = 14
"""The number of the first parameter of a source; they are the last before those of batches."""


class Source:
    """The rows that meet one condition, in the order of their ids.

    Args:
        outbox: The outbox table.
        condition: The condition; ``None`` if every row is eligible.
        indexed: Whether an index begins with the column of the condition and ``id``. The planner then has no
            choice: the rows are wanted in the order of the column and of the id, which no other index has,
            though all have the same value in the column. Statistics do not matter, in which a cluster may be
            all of the table or nothing of it.

    Attributes:
        parameters: The values of the condition, as text whose type the server takes from the column.
    """

    def __init__(
        self, outbox: TableName, condition: ColumnIs | None = None, *, indexed: bool = False
    ) -> None:
        self._outbox = outbox
        self._column = quoted(condition.column) if condition else ""
        self._indexed = indexed and bool(self._column)
        self._too_young = ""
        self.parameters: tuple[str, ...] = ()
        if condition:
            self.parameters = (str(condition.value),)
            if condition.older_than > 0:
                self.parameters += (str(condition.older_than),)
                self._too_young = f"({_old(_since(condition), FIRST_PARAMETER + 1)}) IS NOT TRUE"

    @property
    def order(self) -> str:
        """What orders the rows by their ids."""
        return f"{self._column}, id" if self._indexed else "id"

    def between(self, first: str, last: str = "", number: int = FIRST_PARAMETER) -> list[str]:
        """Returns what must hold for a row of this source whose id is within bounds.

        Args:
            first: The expression of the lowest id; no row if it is null.
            last: That of the highest; empty for any.
            number: The number of the first parameter of the source.
        """
        value = f"${number}"
        if self._indexed:
            upper = f"({self._column}, id) <= ({value}, {last})" if last else f"{self._column} <= {value}"
            return [f"({self._column}, id) >= ({value}, {first})", upper]
        bounds = [f"id >= {first}", *([f"id <= {last}"] if last else [])]
        return [*bounds, *([f"{self._column} = {value}"] if self._column else [])]

    def earliest(self, start: str, wanted: Sequence[str], more: Mapping[str, str] | None = None) -> str:
        """Returns the select of ``id`` and more of the earliest $7 rows at most, in the order of their ids.

        If rows must have an age, it ends before the first that is too young, whoever would take that one. So
        it reads no more than $7 rows of those that are.

        Args:
            start: The expression of the id to look from; no row if it is null.
            wanted: What must hold for a row to be taken.
            more: Name → expression.
        """
        given = "".join(f", {expression} AS {name}" for name, expression in (more or {}).items())
        if not self._too_young:
            where = " AND ".join([*self.between(start), *wanted])
            return f"SELECT id{given} FROM {self._outbox} WHERE {where} ORDER BY {self.order} LIMIT $7"
        where = " AND ".join(self.between(start))
        names = "".join(f", {name}" for name in more or ())
        order = "source, id" if self._indexed else "id"
        return f"""
            SELECT id{names} FROM (
                SELECT source, id{names}, bool_or(too_young) OVER (ORDER BY {order}) AS behind
                FROM (
                    SELECT {self._column} AS source, id{given}, {self._too_young} AS too_young
                    FROM {self._outbox}
                    WHERE {where} AND ({self._too_young} OR ({" AND ".join(wanted)}))
                    ORDER BY {self.order} LIMIT $7
                ) AS aged
            ) AS first
            WHERE NOT behind ORDER BY {order}"""

    def listing(self, oid: int) -> str:
        """Returns the statement that reads the newest id of the source that the sequence has given out.

        $1 an id, $2 the sequence, then the parameters of the source, which has no ages. The newest id from
        there on; the transactions that have taken an id; whether one of them is prepared; the sequence that
        gives out ids now.
        """
        # A row may have an id that no sequence gave out, far above: nothing follows from that one.
        given = (
            "(SELECT CASE WHEN has_sequence_privilege($2::oid, 'SELECT, USAGE')"
            f" THEN coalesce(pg_sequence_last_value($2::oid), {FIRST}) ELSE {LAST} END)"
        )
        # The snapshot, and with it the newest id, is older than the look at the locks, as it must be.
        where = " AND ".join(self.between("$1", given, number=3))
        descending = f"{self._column} DESC, id" if self._indexed else "id"
        return f"""
            SELECT (SELECT id FROM {self._outbox} WHERE {where} ORDER BY {descending} DESC LIMIT 1),
                   coalesce(array_agg(virtualtransaction), '{{}}'), coalesce(bool_or(pid IS NULL), false),
                   ({SEQUENCE_OF.format(oid)})
            FROM pg_locks
            WHERE locktype = 'relation' AND relation = $2 AND mode = 'RowExclusiveLock'
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def sources(
    outbox: TableName, eligible: Sequence[ColumnIs], indexed: Collection[str] = ()
) -> tuple[Source, ...]:
    """Returns a source for each condition, or one of all rows if there is none."""
    made = (Source(outbox, each, indexed=each.column in indexed) for each in eligible)
    return tuple(made) or (Source(outbox),)


def _since(condition: ColumnIs) -> str:
    # Rows that were there before the column may have no time of arrival.
    created = "create_time"
    return created if condition.since == created else f"coalesce({quoted(condition.since)}, {created})"


def _old(since: str, number: int) -> str:
    # The same for all of a statement, which may look at a row more than once.
    return f"{since} < statement_timestamp() - make_interval(secs => ${number}::float8)"
