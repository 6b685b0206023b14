"""The statements that mark, by the rules of ``statements``."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

from outbox_api.portable import TableName
from outbox_api.portable.sources import read_extras

from outbox_postgres.parking_statements import (
    BYTES,
    CREATED,
    FENCE,
    KEY,
    LANE,
    LENGTHS,
    PARKED_KEYS,
    PLACE,
    SEQUENCE_SHIFT,
    TOO_LONG,
    TOPIC,
    UNKNOWN,
    basis,
)
from outbox_postgres.settled import FIRST
from outbox_postgres.sources import Source


class MarkingStatements:
    """The statements that mark rows of one outbox table.

    Attributes:
        mark: Given the source, whether for one of several lanes, and whether bounded by bytes. $6 leader
            id, $7 limit, $8 the id to start from if the basis that the mark sees is $9 (otherwise it
            starts at the head, or marks nothing if ids begin anew), $10 the keys to leave out, $11 how
            many bytes, $12 the topics to leave out, $13 more keys, then the parameters of the source.
            Returns nothing when the fence is lost; else a row that holds nothing but, in its last column,
            0, the number of rows that were found to mark, and the basis, null when it is $9; and behind
            it the marked rows. Their last column is null, or the bytes of a row that has more than the
            bound; which lacks the rest.
        locked_still: $1 ids. Those of rows that others have locked.
    """

    def __init__(
        self,
        outbox: TableName,
        fence: TableName,
        letters: TableName,
        sources: Sequence[Source],
        *,
        extras: Collection[str] = (),
        sequence: int | None = None,
    ) -> None:
        self._outbox = outbox
        self._extras = "".join(f", {name}" for name in read_extras(extras))
        self._fence = fence
        self._basis = basis(outbox, sequence)
        self._parked = PARKED_KEYS.format(letters)
        self._sources = sources
        self.mark = cache(self._mark)
        self.locked = cache(self._locked)
        self.locked_still = f"""
            WITH {self._free("SELECT unnest($1::bigint[])")}
            SELECT id FROM {outbox} WHERE id = ANY ($1::bigint[]) AND id NOT IN (SELECT id FROM free)"""

    def _mark(self, source: int, *, lane: bool, bounded: bool) -> str:
        # Only the mark's own transaction commits without waiting for the disk: one that is lost is repeated.
        lazily = FENCE.format("set_config('synchronous_commit', 'off', true)", self._fence)
        return f"WITH {lazily}, {self._marked(self._sources[source], lane=lane, bounded=bounded)}"

    def _locked(self, source: int, *, lane: bool) -> str:
        """Makes the statement that finds rows which a mark would have to wait for, given the same parameters.

        Returns id and key of each.
        """
        return f"""
            WITH {self._seen}, candidates AS MATERIALIZED (
                {self._earliest(self._sources[source], {"key": KEY}, lane=lane)}
            ), {self._free("SELECT id FROM candidates")}
            SELECT id, key FROM candidates WHERE id NOT IN (SELECT id FROM free)"""

    def _free(self, ids: str) -> str:
        # As an update of the leader id locks them; given back at once, as nothing else is done.
        return f"""free AS MATERIALIZED (
                SELECT id FROM {self._outbox} WHERE id IN ({ids}) FOR NO KEY UPDATE SKIP LOCKED
            )"""

    def _earliest(self, source: Source, more: Mapping[str, str] | None = None, *, lane: bool) -> str:
        wanted = [
            "(leader_id IS NULL OR leader_id <> $6)",
            *([LANE] * lane),
            f"{TOPIC} <> ALL ($12::text[])",
            # A hashed subplan: the keys to leave out are read once for each mark.
            f'{KEY} NOT IN ({self._parked} UNION ALL SELECT unnest($10::text[] || $13::text[]) COLLATE "C")',
        ]
        return source.earliest("(SELECT start FROM seen)", wanted, more)

    @property
    def _seen(self) -> str:
        # What is seen of the basis must be as old as what is seen of letters and rows, therefore it is
        # read apart from the row that is locked: behind a wait for the lock that one is newer than the
        # snapshot.
        return f"""seen AS MATERIALIZED (
                SELECT CASE WHEN {self._basis} = $9 THEN $8
                            -- No row if ids begin anew: others that are marked may have the same ids.
                            WHEN $9 = {UNKNOWN} OR {self._basis} >> {SEQUENCE_SHIFT} = $9 >> {SEQUENCE_SHIFT}
                            THEN '{FIRST}'::bigint END AS start,
                       nullif({self._basis}, $9) AS basis
                FROM {self._fence} WHERE name = $1 AND lane = $2
            )"""

    def _marked(self, source: Source, *, lane: bool, bounded: bool) -> str:
        sized = {"bytes": BYTES} if bounded else None
        earliest = self._earliest(source, sized, lane=lane)
        chosen = self._bounded(earliest) if bounded else self._unbounded(earliest)
        returned = ["kafka_value", "kafka_header_keys", "kafka_header_values"]
        created = CREATED.format("(SELECT cardinality(ids) FROM chosen)")
        size, place = "NULL::bigint[]", "kafka_topic, kafka_key"
        if bounded:
            huge, place = f"(SELECT cut FROM chosen) AND {BYTES} > $11 OR {TOO_LONG}", PLACE
            returned = [f"CASE WHEN {huge} THEN NULL ELSE {column} END" for column in returned]
            size = f"CASE WHEN {huge} THEN {LENGTHS} END"
        return f"""
            {self._seen}, {chosen}, marked AS (
                UPDATE {self._outbox} SET leader_id = $6
                WHERE id = ANY ((SELECT ids FROM chosen)::bigint[])
                RETURNING id, {place}, {", ".join(returned)}{self._extras}, {created}, {size}
            )
            SELECT NULL AS id, NULL, NULL, NULL, NULL, NULL{", NULL" * self._extras.count(",")}, NULL,
                   ARRAY[0, cardinality(ids), (SELECT basis FROM seen)]::bigint[]
            FROM chosen
            UNION ALL SELECT * FROM marked"""

    def _unbounded(self, earliest: str) -> str:
        return f"""chosen AS MATERIALIZED (SELECT ARRAY({earliest}) AS ids FROM fence)"""

    def _bounded(self, earliest: str) -> str:
        # A sum over all that could be marked costs next to nothing. Only where it is too much the rows are
        # looked at once more, for a prefix of them that fits. A row beyond the bound counts nothing; so the
        # prefix has one row at least.
        return f"""candidates AS MATERIALIZED (
                SELECT coalesce(array_agg(id), '{{}}') AS ids, sum(bytes) AS bytes
                FROM ({earliest}) AS waiting
            ), chosen AS MATERIALIZED (
                SELECT CASE WHEN bytes > $11 THEN ARRAY(
                           SELECT id FROM (
                               SELECT id, sum(bytes) FILTER (WHERE bytes <= $11) OVER (ORDER BY id) AS sum
                               FROM (
                                   SELECT id, {BYTES} AS bytes
                                   FROM {self._outbox} WHERE id = ANY (candidates.ids)
                               ) AS sized
                           ) AS summed
                           WHERE sum <= $11 OR sum IS NULL ORDER BY id
                       ) ELSE ids END AS ids,
                       bytes > $11 AS cut
                FROM fence, candidates
            )"""
