"""The statements that delete batches and select the next, by the rules of ``statements``."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

from outbox_api.portable import TableName
from outbox_api.portable.sources import read_extras

from outbox_postgres.keeping import Keeping
from outbox_postgres.parking_statements import (
    BYTES,
    CREATED,
    FENCE,
    FENCE_MATCHES,
    KEY,
    LANE,
    LENGTHS,
    PARKED_KEYS,
    PLACE,
    TOO_LONG,
    TOPIC,
    basis,
)
from outbox_postgres.sources import FIRST_PARAMETER, Source

_LARGE = ("kafka_value", "kafka_header_keys", "kafka_header_values")


def whole_row(extras: Collection[str]) -> str:
    """Returns the columns of a row that is read as it is; ``extras`` as for the statements."""
    columns = ", ".join(("id", "kafka_topic", "kafka_key", *_LARGE, *read_extras(extras)))
    return f"{columns}, {CREATED.format(1)}, NULL::bigint[]"


class BatchStatements:
    """The statements for the batches of one outbox table.

    Batches are given as arrays of equal length, an element for each run of ids: the first ids, the last ids,
    and the newest times as text, null where a batch has none.

    Attributes:
        select: Given the source, whether for one of several lanes, whether bounded by bytes, and whether
            all rows tell when they were created. $6 and $10 the first and the last ids of the runs that are
            left out, $7 limit, $8 the id to start from, $9 the basis as this connection saw it last, $11 how
            many bytes, $12 the topics and $13 the keys to leave out beside parked ones, then the parameters
            of the source. Returns nothing when the fence is lost; else a row that holds in its second column
            the newest time of the selected rows, and in its last column 0, the number of rows that were
            found, and the basis, null when it is $9; and behind it the selected rows, ordered by id. Where
            the basis is not $9 it selects none, since what is left out may not be all. The last column of a
            row is as in ``MarkingStatements.mark``.
        advance: As ``select``; holds the fence, and deletes the batches whose runs are the last three
            parameters. It does not count them, which would cost half as much as the deletion.
        finish: $6, $7 and $8 the batches to delete. Returns nothing when the fence is lost, else the number
            of rows deleted.
        finish_free: As ``finish``, without the rows that others have locked.
        supersede: As ``finish_free``, of rows that were not delivered.
        left: $1, $2 and $3 as those of ``finish``. The ids of their rows that are there, in any order.
        rows: As ``left``, with the columns of a selected row.
    """

    def __init__(
        self,
        outbox: TableName,
        fence: TableName,
        letters: TableName,
        sources: Sequence[Source],
        *,
        time: str,
        extras: Collection[str] = (),
        sequence: int | None = None,
        keeping: Keeping,
    ) -> None:
        self._keeping = keeping
        self._outbox = outbox
        self._time = time
        self._extras = "".join(f", {name}" for name in read_extras(extras))
        self._fence = fence
        self._basis = basis(outbox, sequence)
        self._parked = PARKED_KEYS.format(letters)
        self._sources = sources
        self._held = held = FENCE.format("", fence)
        self._looked = f"WITH fence AS MATERIALIZED (SELECT FROM {fence} WHERE {FENCE_MATCHES})"
        self.select = cache(self._select)
        self.advance = cache(self._advance)
        deleted = "SELECT (SELECT count(*) FROM purged) FROM fence"
        kept = keeping.kept("purged")
        returning = f"RETURNING {keeping.returning}"
        self.finish = f"WITH {held}, {self._purged(6)} {returning}){kept} {deleted}"
        # An array: joined with the rows that are free, the whole table would be read, as it is analyzed.
        self.finish_free, self.supersede = (
            f"""
            WITH {held}, free AS MATERIALIZED (
                SELECT o.id FROM {self._rows(6)} WHERE EXISTS (SELECT FROM fence)
                FOR UPDATE OF o SKIP LOCKED
            ), purged AS (DELETE FROM {outbox} WHERE id = ANY (ARRAY(SELECT id FROM free)) {returning}){keep}
            {deleted}"""
            for keep in (kept, keeping.kept("purged", superseded=True))
        )
        # In no order: for one the whole table would be compared with each run, as sessions do not sort.
        self.left = f"SELECT id FROM {self._rows(1)}"
        self.rows = f"SELECT {whole_row(extras)} FROM {self._rows(1)}"

    def _select(self, source: int, **kinds: bool) -> str:
        return f"{self._looked}, {self._selected(self._sources[source], **kinds)}"

    def _advance(self, source: int, **kinds: bool) -> str:
        # All of a statement sees the table as it was before, so it must leave out what it deletes, too.
        taken_from = self._sources[source]
        purged = self._purged(FIRST_PARAMETER + len(taken_from.parameters))
        if kept := self._keeping.kept("purged"):
            purged += f" RETURNING {self._keeping.returning}"
        return f"WITH {self._held}, {purged}){kept}, {self._selected(taken_from, **kinds)}"

    def _runs(self, number: int) -> str:
        # Compared in the type of the column: a time without zone has no order in a zone with summer time.
        at = f"${number}::bigint[], ${number + 1}::bigint[], ${number + 2}::text[]::{self._time}[]"
        return f"unnest({at}) AS run (first, last, newest)"

    def _matches(self) -> str:
        # A younger row has the id of a deleted one.
        return (
            "o.id BETWEEN run.first AND run.last"
            " AND (run.newest IS NULL OR o.create_time <= run.newest OR o.create_time IS NULL)"
        )

    def _rows(self, number: int) -> str:
        return f"{self._runs(number)} JOIN {self._outbox} AS o ON {self._matches()}"

    def _purged(self, number: int) -> str:
        return f"""purged AS (
                DELETE FROM {self._outbox} AS o USING {self._runs(number)}
                WHERE {self._matches()} AND EXISTS (SELECT FROM fence)"""

    def _wanted(self, *, lane: bool) -> list[str]:
        # Hashed subplans: what is to be left out is read once for each statement. Runs below the start are
        # not given, so usually there are none.
        runs = "unnest($6::bigint[], $10::bigint[]) AS run (first, last)"
        left_out = f"SELECT generate_series(first, last) FROM {runs}"
        return [
            *([LANE] * lane),
            f"{TOPIC} <> ALL ($12::text[])",
            f'{KEY} NOT IN ({self._parked} UNION ALL SELECT unnest($13::text[]) COLLATE "C")',
            f"id NOT IN ({left_out})",
        ]

    def _selected(self, source: Source, *, lane: bool, bounded: bool, dated: bool = False) -> str:
        """Finds out up to which id to select, and reads these rows: so no row is stored on the way."""
        wanted = self._wanted(lane=lane)
        start = "(SELECT $8::bigint FROM seen WHERE same)"
        within = " AND ".join([*source.between(start, "(SELECT last FROM bound)"), *wanted])
        last, size, found = "last", "0", f"FROM {self._outbox} WHERE {within}"
        long = f"CASE WHEN {TOO_LONG} THEN {LENGTHS} END" if bounded else "NULL::bigint[]"
        whole = f"SELECT {self._columns(TOO_LONG if bounded else '', dated=dated)}, {long} {found}"
        parts = [whole]
        if bounded:
            sized = source.earliest(start, wanted, {"bytes": BYTES})
            last, size = f"CASE WHEN bytes <= $11 THEN last ELSE ({_prefix(sized)}) END", BYTES
            huge = f"{BYTES} > $11 OR {TOO_LONG}"
            cut = f"SELECT {self._columns(huge, dated=dated)}, CASE WHEN {huge} THEN {LENGTHS} END {found}"
            parts = [f"{whole} AND NOT (SELECT cut FROM bound)", f"{cut} AND (SELECT cut FROM bound)"]
        earliest = source.earliest(start, wanted, {"create_time": "create_time", "bytes": size})
        return f"""seen AS MATERIALIZED (
                SELECT {self._basis} = $9 AND EXISTS (SELECT FROM fence) AS same,
                       nullif({self._basis}, $9) AS basis
                FROM {self._fence} WHERE name = $1 AND lane = $2
            ), waiting AS MATERIALIZED (
                SELECT count(*) AS found, max(id) AS last, max(create_time)::text AS newest,
                       sum(bytes) AS bytes
                FROM ({earliest}) AS first
            ), bound AS MATERIALIZED (
                SELECT found, newest, {last} AS last, bytes > $11 AS cut FROM waiting
            )
            SELECT NULL AS id, newest, NULL, NULL, NULL, NULL{", NULL" * self._extras.count(",")}, NULL,
                   ARRAY[0, found, (SELECT basis FROM seen)]::bigint[]
            FROM fence, bound
            {" ".join(f"UNION ALL ({part} ORDER BY {source.order})" for part in parts)}"""

    def _columns(self, huge: str, *, dated: bool) -> str:
        """Writes the columns of a row, without its value and headers if it is huge."""
        large = _LARGE if not huge else [f"CASE WHEN {huge} THEN NULL ELSE {name} END" for name in _LARGE]
        created = CREATED.format(1 if dated else "(SELECT found FROM bound)")
        place = PLACE if huge else "kafka_topic, kafka_key"
        return f"id, {place}, {', '.join(large)}{self._extras}, {created}"


def _prefix(sized: str) -> str:
    # A row beyond the bound counts nothing; so the prefix has one row at least.
    return f"""
            SELECT max(id) FROM (
                SELECT id, sum(bytes) FILTER (WHERE bytes <= $11) OVER (ORDER BY id) AS sum
                FROM ({sized}) AS sized
            ) AS summed
            WHERE sum <= $11 OR sum IS NULL"""
