"""The statements that park keys and free them, by the rules of ``statements``."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from outbox_sdk.parking import LONGEST_KEY
from outbox_sdk.portable import TableName
from outbox_sdk.portable.columns import COLUMNS

FENCE_MATCHES = "name = $1 AND lane = $2 AND lanes = $3 AND token = $4 AND attempt = $5"


def free(outbox: TableName, lock: str) -> str:
    """Writes what locks those of the rows $7 that carry the leader id $6 and that nobody has locked."""
    return f"""free AS MATERIALIZED (
            SELECT id FROM {outbox}
            WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
            {lock} SKIP LOCKED
        )"""


_LONGEST = 4 * (LONGEST_KEY + 1)
"""Where texts are cut in short lists: enough also where the database counts bytes."""

KEY = "coalesce(kafka_key, '')::text COLLATE \"C\""
"""A row's key as lanes know it, compared byte by byte whatever the collation of the column."""

TOPIC = "coalesce(kafka_topic, '')::text COLLATE \"C\""
"""A row's topic, as its key."""

PARKED_KEYS = f"SELECT {KEY} FROM {{}} WHERE name = $1 AND fate = 'parked'"
"""The parked keys in a table of dead letters."""

_COPIED = COLUMNS[1:]
_COPY = ", ".join(_COPIED)


class ParkingStatements:
    """The statements for the dead letters of one outbox.

    A value is kept as its bytes, in the encoding of the database where it is text.

    Args:
        outbox: The outbox table.
        fence: The fence table.
        letters: The table of dead letters.
        binary: Whether the outbox keeps values as bytes.

    Attributes:
        park: $6 leader id, $7 ids as an array literal, $8 the heads' ids, $9 their reasons, $10 their
            attempts. Returns nothing when the fence is lost, else the number of keys parked.
        park_free: As ``park``, without the rows that others have locked.
        park_unmarked: As ``park``, for heads whatever leader id they carry: $6 is null, and $7 empty.
        id_conflicts: $1 name, $2 the heads' ids, $3 leader id or null for any. The ids of dead letters that
            heads would replace although they are skipped or of other keys: the outbox has given out these ids
            anew.
        move_conflicts: $1 name, $2 ids. Gives dead letters new ids, below all others and in their order.
        parked: $1 name. The number of parked keys, and the age of the oldest in seconds.
        whole_letters: $1 name, $2 keys, none for all, $3 fate, null for all, $4 ids, null for all.
        short_letters: As ``whole_letters``, without values and headers, and with the beginnings of keys.
        waiting: $1 the spellings of a key. The number of its rows.
        release: $1 name. Locks out marks and parks, and has the next mark of each lane start at the head.
        retry: $1 name, $2 ids. Returns the ids freed.
        take: $1 name, $2 ids. Deletes the heads, and copies them as they are into their letters.
        drop: $1 name, $2 ids. Deletes the letters of heads that were not taken, and returns their ids.
        skip: $1 name, $2 ids. Returns the ids skipped.
        forget_skipped: $1 name, $2 seconds, $3 how many at most. Deletes letters that were skipped so long
            ago, and returns their ids.
        redrive: $1 name, $2 ids. Returns the ids stashed.
    """

    def __init__(self, outbox: TableName, fence: TableName, letters: TableName, *, binary: bool) -> None:
        value = "kafka_value" if binary else "convert_to(kafka_value::text, getdatabaseencoding())"
        kept = _COPY.replace("kafka_value", f"{value} AS kafka_value")
        value = "kafka_value" if binary else "convert_from(kafka_value, getdatabaseencoding())"
        given = _COPY.replace("kafka_value", value)
        chosen = f"FROM {letters} WHERE name = $1 AND id = ANY ($2::bigint[])"
        marked = f"""
            UPDATE {outbox} SET leader_id = NULL
            WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
            RETURNING id, {kept}"""
        marked_free = f"""
            UPDATE {outbox} SET leader_id = NULL WHERE id = ANY (ARRAY(SELECT id FROM free))
            RETURNING id, {kept}"""
        unmarked = f"""
            SELECT id, {kept} FROM {outbox}
            WHERE id = ANY ($8::bigint[]) AND EXISTS (SELECT FROM fence)
              AND $6::uuid IS NULL AND $7::bigint[] = '{{}}'"""
        self.park, self.park_unmarked = (_park(fence, letters, rows) for rows in (marked, unmarked))
        self.park_free = _park(fence, letters, marked_free, f"{free(outbox, 'FOR NO KEY UPDATE')}, ")
        carried = f"{outbox} WHERE id = ANY ($2::bigint[]) AND ($3::uuid IS NULL OR leader_id = $3)"
        self.id_conflicts = f"""
            SELECT id {chosen} AND id IN (SELECT id FROM {carried})
              AND (fate = 'skipped' OR (id, {KEY}) NOT IN (SELECT id, {KEY} FROM {carried}))"""
        self.move_conflicts = f"""
            UPDATE {letters} AS letter SET id = moved.id
            FROM (
                SELECT id AS former, lowest - row_number() OVER (ORDER BY id DESC) AS id
                FROM (SELECT least(0, min(id)) AS lowest FROM {letters} WHERE name = $1) AS every,
                     (SELECT id {chosen}) AS those
            ) AS moved
            WHERE letter.name = $1 AND letter.id = moved.former"""
        self.parked = f"""
            SELECT count(*), extract(epoch FROM clock_timestamp() - min(since))::float8
            FROM {letters} WHERE name = $1 AND fate = 'parked'"""
        place = f"left(kafka_topic, {_LONGEST}), left(kafka_key, {_LONGEST})"
        short = f"{place}, NULL::text, NULL::text[], NULL::text[]"
        self.whole_letters, self.short_letters = (_listed(letters, shown) for shown in (given, short))
        self.waiting = f"SELECT count(*) FROM {outbox} WHERE {KEY} = ANY ($1::text[])"
        self.release = f"UPDATE {fence} SET releases = releases + 1 WHERE name = $1"
        self.retry = f"DELETE {chosen} AND fate = 'parked' RETURNING id"
        # A row that has another key by now is no longer the head, and may be under way.
        self.take = f"""
            WITH head AS (
                DELETE FROM {outbox}
                WHERE id = ANY ($2::bigint[])
                  AND (id, {KEY}) IN (SELECT id, {KEY} {chosen} AND fate = 'parked')
                RETURNING id, {kept}
            )
            UPDATE {letters} AS letter SET ({_COPY}) = ROW (head.kafka_topic, head.kafka_key,
                head.kafka_value, head.kafka_header_keys, head.kafka_header_values)
            FROM head WHERE letter.name = $1 AND letter.id = head.id"""
        self.drop = f"""
            DELETE {chosen} AND fate = 'parked'
              AND id IN (SELECT id FROM {outbox} WHERE id = ANY ($2::bigint[])) RETURNING id"""
        self.forget_skipped = f"""
            DELETE FROM {letters}
            WHERE name = $1 AND fate = 'skipped' AND id = ANY (ARRAY (
                SELECT id FROM {letters}
                WHERE name = $1 AND fate = 'skipped'
                  AND since <= clock_timestamp() - make_interval(secs => $2::float8)
                ORDER BY id LIMIT $3
            )) RETURNING id"""
        self.skip = f"""
            UPDATE {letters} SET fate = 'skipped', since = clock_timestamp()
            WHERE name = $1 AND id = ANY ($2::bigint[]) AND fate = 'parked' RETURNING id"""
        # Ids are given out to the rows as they come from the ordered select.
        self.redrive = f"""
            WITH taken AS (
                DELETE {chosen} AND fate = 'skipped' RETURNING id, {_COPY}
            ), stashed AS (
                INSERT INTO {outbox} (create_time, {_COPY})
                SELECT clock_timestamp(), {given} FROM taken ORDER BY id
            )
            SELECT id FROM taken"""


def _listed(letters: TableName, shown: str) -> str:
    return f"""
        SELECT id, {shown}, fate, reason, attempts, since,
               extract(epoch FROM clock_timestamp() - since)::float8
        FROM {letters}
        WHERE name = $1 AND ($2::text[] = '{{}}' OR {KEY} = ANY ($2::text[]))
          AND ($3::text IS NULL OR fate = $3::text) AND ($4::bigint[] IS NULL OR id = ANY ($4::bigint[]))
        ORDER BY id"""


def _park(fence: TableName, letters: TableName, rows: str, before: str = "") -> str:
    again = ", ".join(
        f"{column} = excluded.{column}" for column in (*_COPIED, "fate", "reason", "attempts", "since")
    )
    # The share lock comes first, as in a mark.
    return f"""
        WITH fence AS MATERIALIZED (
            SELECT FROM {fence} WHERE {FENCE_MATCHES} FOR SHARE
        ), {before}heads AS ({rows}), parked AS (
            INSERT INTO {letters} (name, id, {_COPY}, fate, reason, attempts, since)
            SELECT $1, id, {_COPY}, 'parked', reason, attempts, clock_timestamp()
            FROM heads JOIN unnest($8::bigint[], $9::text[], $10::bigint[]) AS head (id, reason, attempts)
            USING (id)
            ON CONFLICT (name, id) DO UPDATE SET {again}
            RETURNING id
        )
        SELECT (SELECT count(*) FROM parked) FROM fence"""
