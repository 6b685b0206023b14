"""The statements of the transactional fallback, in the words of an idiom.

The fence is ``{name}``, ``{lane}``, ``{lanes}``, ``{token}`` and ``{epoch}`` in each statement
that compares it.
"""
# ruff: noqa: S608 - names come quoted from the idiom, ids are numbers, and every other value is a parameter

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from outbox_api.base.bounds import MAX_KEY_BYTES, MAX_TOPIC_BYTES
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.keeping import SUPERSEDED, Keep, copying
from outbox_api.portable.sources import (
    BEGINNING,
    COLUMNS,
    DEAD_LETTER_COLUMNS,
    Source,
    quoted,
    read_extras,
    sources,
)
from outbox_api.portable.tables import Tables
from outbox_api.seams.affinity import ColumnIs
from outbox_api.seams.parking import LONGEST_KEY

_HELD = "name = {name} AND lane = {lane} AND lanes = {lanes} AND token = {token} AND epoch = {epoch}"
_READ = ", ".join(COLUMNS)
_KEY, _TOPIC = "COALESCE(kafka_key, '')", "COALESCE(kafka_topic, '')"

UNCLAIMED = "(leader_id IS NULL OR leader_id <> {leader})"
"""The condition that a row does not carry a leader id."""


class Statements:
    """The statements for one outbox; see :class:`outbox_api.OutboxTable` for what they do.

    Args:
        idiom: How the database writes SQL.
        tables: The tables of the outbox.
        eligible: Conditions of which one must hold for a row to be marked.
        indexes: Column → name of an index of this column and ``id``, where there is one.
        extras: The columns for partition and timestamp that the outbox has.
        keep: Which rows a purge keeps; ``None`` for none.

    Attributes:
        idiom: As given.
        name: The name by which the tables beside the outbox know it.
        extras: The columns for partition and timestamp, as they are read; none if the outbox has none.
        key: The key of a row, as lanes compare it.
        unparked: The condition that a row's key is not parked.
    """

    def __init__(
        self,
        idiom: Idiom,
        tables: Tables,
        eligible: Sequence[ColumnIs] = (),
        *,
        indexes: Mapping[str, str] = MappingProxyType({}),
        extras: Collection[str] = (),
        keep: Keep | None = None,
    ) -> None:
        self.name = tables.name
        written = [quoted(idiom, table) for table in tables[:6]]
        self.outbox, self.fence, self.notes, self.lease, self.members, self.letters = written
        self.history = quoted(idiom, tables.history)
        self.idiom = idiom
        seen = idiom.snapshot_by_id(self.outbox)
        self._copy = copying(idiom, tables, keep, extras, source=seen) if keep else ""
        self._copy_superseded = (
            copying(idiom, tables, keep, extras, source=seen, lacks=SUPERSEDED) if keep else ""
        )
        self.extras = read_extras(extras)
        self._eligible = bool(eligible)
        age = idiom.age_seconds("create_time")
        self._marked = ", ".join((*COLUMNS, f"{age} AS age", *self.extras))
        self._sampled_age = f"CASE WHEN {idiom.remainder('id', '{every}')} = 0 THEN {age} END AS age"
        self.key = idiom.comparable(_KEY)
        self._sources = sources(idiom, eligible, indexes)
        parked = f"SELECT {self.key} FROM {self.letters} WHERE name = {{name}} AND status = 'parked'"
        self.unparked = idiom.not_in_query(self.key, parked)
        self.choose = lru_cache(maxsize=64)(self._choose)
        self._fence_statements()
        self._note_statements()
        self._letter_statements()
        self._row_statements()
        self._batch_statements()
        sample = idiom.limit(f"SELECT id FROM {self.outbox} ORDER BY id", "{limit}")
        self.count = f"SELECT COUNT(*) FROM ({sample}) counted"
        free = f"SELECT id FROM {idiom.snapshot_by_id(self.outbox)} WHERE {self.unparked} ORDER BY id"
        self.flowing = f"SELECT COUNT(*) FROM ({idiom.limit(free, '{limit}')}) counted"
        self.spread = f"SELECT MIN(id), MAX(id) FROM {self.outbox}"
        self._waiting_statements()
        first = f"SELECT {self._marked} FROM {idiom.snapshot_by_id(self.outbox)} WHERE id > {{after}}"
        self.peek = idiom.limit(f"{first} ORDER BY id", "{limit}")

    def _waiting_statements(self) -> None:
        """Makes what groups the first ``{limit}`` rows, the largest ``{most}`` groups first."""
        idiom, topic = self.idiom, self.idiom.comparable(_TOPIC)
        marked = f"CASE WHEN {idiom.unmarked} THEN 0 ELSE 1 END"
        columns = "id, kafka_topic, kafka_key, create_time, leader_id"
        head = idiom.limit(
            f"SELECT {columns} FROM {idiom.snapshot_by_id(self.outbox)} ORDER BY id", "{limit}"
        )
        figures = f"MIN(id), COUNT(*), SUM({marked}), MAX({idiom.age_seconds('create_time')})"
        self.by_topic, self.by_key = (
            idiom.limit(
                f"SELECT {figures} FROM ({head}) counted GROUP BY {group} ORDER BY COUNT(*) DESC, MIN(id)",
                "{most}",
            )
            for group in (topic, f"{topic}, {self.key}")
        )
        names = [
            self._beginning(column, LONGEST_KEY, LONGEST_KEY + 1) for column in ("kafka_topic", "kafka_key")
        ]
        unread = ", ".join(f"NULL AS {column}" for column in COLUMNS[3:])
        self.named = SelectByIds(f"id, {', '.join(names)}, {unread}", self.outbox)
        self._named_topic, self._row_marked = names[0], marked

    def rows_of_key(self, *, named: bool) -> tuple[str, str]:
        """Makes what reads a key's first ``{limit}`` rows, and what counts them.

        Args:
            named: Whether the key is ``{key}``; if not, it is that of the row ``{row_id}``, perhaps no text.
        """
        idiom, seen = self.idiom, self.idiom.snapshot_by_id(self.outbox)
        of_row = f"(SELECT {self.key} FROM {seen} WHERE id = {{row_id}})"
        where = f"FROM {seen} WHERE {self.key} = {idiom.comparable('{key}') if named else of_row}"
        size = " + ".join(f"COALESCE({idiom.size_of(column)}, 0)" for column in COLUMNS[2:4])
        columns = f"id, {self._named_topic}, {idiom.age_seconds('create_time')}, {size}, {self._row_marked}"
        return idiom.limit(f"SELECT {columns} {where} ORDER BY id", "{limit}"), f"SELECT COUNT(*) {where}"

    def _row_statements(self) -> None:
        idiom, outbox = self.idiom, self.outbox
        free = SelectByIds("id", idiom.snapshot_by_id(outbox), suffix=idiom.skip_locked)
        self.free = free if idiom.skip_locked else None
        self.keys = SelectByIds("id, kafka_key", outbox)
        carried = "leader_id = {leader}"
        self.claim = ChangeByIds(outbox, carried, index=idiom.id_index)
        # Where clusters replicate the table, a mark of another one may have taken the place of the lane's.
        self.purge = ChangeByIds(
            outbox, condition="" if self._eligible else carried, index=idiom.id_index, copy=self._copy
        )
        self.reset = ChangeByIds(outbox, "leader_id = NULL", carried, index=idiom.id_index)
        self.remove = ChangeByIds(outbox, index=idiom.id_index, copy=self._copy)
        self.supersede = replace(self.remove, copy=self._copy_superseded)
        self.carried = SelectByIds("id", outbox, carried)
        self.carried_rows = SelectByIds(self._marked, outbox, carried)
        self.carried_keys = SelectByIds(f"id, {self.key}", outbox, carried)
        longest = {"kafka_topic": MAX_TOPIC_BYTES, "kafka_key": MAX_KEY_BYTES}
        place = ", ".join(self._beginning(column, most) for column, most in longest.items())
        rest = ", ".join(f"NULL AS {column}" for column in COLUMNS[3:])
        bare = ", ".join(("id", place, rest, "NULL AS age", *self.extras))
        self.carried_heads = SelectByIds(bare, outbox, carried)
        seen = idiom.snapshot_read(outbox)
        self.selected_rows, self.selected_heads = SelectByIds(self._marked, seen), SelectByIds(bare, seen)
        self.heads = SelectByIds(_READ, outbox)
        self.head_keys = SelectByIds(f"id, {self.key}", outbox)

    def _batch_statements(self) -> None:
        idiom, outbox, time_text = self.idiom, self.outbox, self.idiom.time_text
        seen = idiom.snapshot_read(outbox)
        self.present = SelectByIds("id", seen)
        self.present_old, self.selected_old, self.remove_old = self.present, self.selected_rows, self.remove
        self.supersede_old = self.supersede
        if time_text:
            old = f"(create_time IS NULL OR {time_text} <= {{newest}})"
            self.present_old = SelectByIds("id", seen, old)
            self.selected_old = SelectByIds(self._marked, seen, old)
            self.remove_old = replace(self.remove, condition=old)
            self.supersede_old = replace(self.supersede, condition=old)

    def _fence_statements(self) -> None:
        idiom, fence = self.idiom, self.fence
        named, lanes = "name = {name}", "name = {name} AND lane < lanes"
        identity = idiom.quote("identity")  # a word of its own in some databases
        held = f"{_HELD}{idiom.will_change.format(table=self.outbox)}"
        self.hold = idiom.locking_select("lane", fence, held, idiom.shared_lock)
        self.look = f"SELECT lane FROM {idiom.snapshot_read(fence)} WHERE {_HELD}"
        self.hold_lanes = idiom.locking_select("lane", fence, named, idiom.exclusive_lock)
        self.tokens = f"SELECT lane, token FROM {fence} WHERE {named}"
        self.make_lane = (
            f"INSERT INTO {fence}"
            f" (name, lane, lanes, token, epoch, holder, since, metrics, transacting, {identity})"
            f" VALUES ({{name}}, {{lane}}, {{lanes}}, {{token}}, 0, {{holder}}, {idiom.now}, '{{{{}}}}', 0,"
            " {identity})"
        )
        self.bump = (
            f"UPDATE {fence} SET lanes = {{lanes}}, token = {{token}}, epoch = 0, holder = {{holder}},"
            f" since = {idiom.now}, heartbeat_at = NULL, metrics = '{{{{}}}}' WHERE {named}"
        )
        self.enter = (
            f"UPDATE {fence} SET epoch = epoch + 1"
            " WHERE name = {name} AND lane = {lane} AND lanes = {lanes} AND token = {token}"
        )
        self.entered = f"SELECT epoch, {identity} FROM {fence} WHERE name = {{name}} AND lane = {{lane}}"
        self.heartbeat = f"UPDATE {fence} SET heartbeat_at = {idiom.now}, metrics = {{metrics}} WHERE {_HELD}"
        self.set_transactional = (
            f"UPDATE {fence} SET transacting = {{noted}}, sender = {{sender}}, location = {{location}}"
            f" WHERE {_HELD}"
        )
        self.transactional_lanes = (
            f"SELECT lane, transacting, sender, location FROM {fence}"
            f" WHERE {named} AND transacting > 0 ORDER BY lane"
        )
        self.lane_statuses = (
            "SELECT lane, lanes, token, epoch, holder, since, heartbeat_at,"
            f" {idiom.age_seconds('heartbeat_at')}, metrics FROM {fence} WHERE {lanes} ORDER BY lane"
        )

    def _note_statements(self) -> None:
        idiom, notes, named = self.idiom, self.notes, "name = {name}"
        identity = idiom.quote("identity")
        self.identity = f"SELECT {identity} FROM {notes} WHERE {named}"
        self.make_note = f"INSERT INTO {notes} (name) VALUES ({{name}})"
        self.identify = f"UPDATE {notes} SET {identity} = {{identity}} WHERE {named} AND {identity} IS NULL"
        self.hold_note = idiom.locking_select("takeovers, pauses", notes, named, idiom.exclusive_lock)
        self.takeovers = f"SELECT takeovers FROM {idiom.snapshot_read(notes)} WHERE {named}"
        self.set_takeovers = f"UPDATE {notes} SET takeovers = {{takeovers}} WHERE {named}"
        self.pauses = f"SELECT pauses FROM {idiom.snapshot_read(notes)} WHERE {named} AND pauses IS NOT NULL"
        self.set_pauses = f"UPDATE {notes} SET pauses = {{pauses}} WHERE {named}"
        self.noted = (
            f"SELECT DISTINCT name FROM {self.fence} WHERE transacting > 0"
            f" OR name IN (SELECT name FROM {self.letters} WHERE status = 'parked')"
        )

    def _letter_statements(self) -> None:
        idiom, letters = self.idiom, self.letters
        named, chosen = "name = {name}", "name = {name} AND status = {status}"
        columns = ", ".join(DEAD_LETTER_COLUMNS)
        values = ", ".join(f"{{{column}}}" for column in DEAD_LETTER_COLUMNS if column != "since")
        self.forget_letter = ChangeByIds(letters, condition=named)
        self.letters_at = SelectByIds(f"id, status, {self.key}", letters, named)
        self.lowest_letter = f"SELECT MIN(id) FROM {letters} WHERE name = {{name}}"
        self.move_letter = f"UPDATE {letters} SET id = {{other}} WHERE name = {{name}} AND id = {{id}}"
        self._copies(columns)
        self.write_letter = f"INSERT INTO {letters} ({columns}) VALUES ({values}, {idiom.now})"
        self.parked = (
            f"SELECT COUNT(*), MAX({idiom.age_seconds('since')}) FROM {letters}"
            " WHERE name = {name} AND status = 'parked'"
        )
        told = f"status, reason, attempts, since, {idiom.age_seconds('since')}"
        whole, short = f"{_READ}, {told}", f"{self._without(*COLUMNS[3:])}, {told}"
        every = f"FROM {letters} WHERE {named} ORDER BY id"
        self.list_whole, self.list_short = f"SELECT {whole} {every}", f"SELECT {short} {every}"
        self.whole_letters = SelectByIds(whole, letters, named, " ORDER BY id")
        self.short_letters = SelectByIds(short, letters, named, " ORDER BY id")
        self.chosen = SelectByIds(_READ, letters, chosen, " ORDER BY id")
        self.chosen_heads = SelectByIds(self._without("kafka_value"), letters, chosen, " ORDER BY id")
        self.chosen_keys = SelectByIds(f"id, {self.key}", letters, chosen)
        self.drop_letters = ChangeByIds(letters, condition=chosen)
        aged = f"{idiom.age_seconds('since')} >= {{age}}"
        self.skipped = idiom.limit(
            f"SELECT id FROM {letters} WHERE {chosen} AND {aged} ORDER BY id", "{limit}"
        )
        self.skip = (
            f"UPDATE {letters} SET status = 'skipped', since = {idiom.now}, kafka_topic = {{kafka_topic}},"
            " kafka_value = {kafka_value}, kafka_header_keys = {kafka_header_keys},"
            " kafka_header_values = {kafka_header_values}"
            " WHERE name = {name} AND id = {id}"
        )
        self.skip_gone = ChangeByIds(letters, f"status = 'skipped', since = {idiom.now}", chosen)
        self.waiting = f"SELECT COUNT(*) FROM {self.outbox} WHERE {self.key} = {idiom.comparable('{key}')}"
        self.stash = stash(idiom, self.outbox, {column: column for column in COLUMNS[1:]})

    def _copies(self, columns: str) -> None:
        """Makes what copies a head within the database; empty where values must pass through the client."""
        copies = {**{column: column for column in COLUMNS}, "kafka_key": self.idiom.to_utf8("kafka_key")}
        copies["kafka_value"] = self.idiom.to_utf8("kafka_value")
        self.copy_head = self.copy_skipped = ""
        if not copies["kafka_value"]:
            return
        head = f"FROM {self.outbox} WHERE id = {{id}}"
        self.copy_head = (
            f"INSERT INTO {self.letters} ({columns}) SELECT {{name}}, {', '.join(copies.values())},"
            f" {{status}}, {{reason}}, {{attempts}}, {self.idiom.now} {head}"
        )
        kept = ", ".join(f"{column} = (SELECT {copies[column]} {head})" for column in COLUMNS[1:])
        self.copy_skipped = (
            f"UPDATE {self.letters} SET status = 'skipped', since = {self.idiom.now}, {kept}"
            " WHERE name = {name} AND id = {id}"
        )

    def restore(self, *, binary: bool) -> str:
        """Makes the INSERT that stashes a letter's value within the database; empty where that cannot be."""
        if not (value := self.idiom.from_utf8("kafka_value", binary=binary)):
            return ""
        columns = list(COLUMNS[1:])
        values = [value if column == "kafka_value" else f"{{{column}}}" for column in columns]
        if not self.idiom.fills_create_time:
            columns, values = ["create_time", *columns], [self.idiom.now, *values]
        return (
            f"INSERT INTO {self.outbox} ({', '.join(columns)}) SELECT {', '.join(values)}"
            f" FROM {self.letters} WHERE name = {{name}} AND id = {{id}}"
        )

    def oldest(self, without: Sequence[str]) -> str:
        """Makes the query for the age of the oldest row whose key is not parked, under these conditions."""
        age, seen = self.idiom.age_seconds("create_time"), self.idiom.snapshot_by_id(self.outbox)
        free = " AND ".join((self.unparked, *without))
        return self.idiom.limit(f"SELECT {age} FROM {seen} WHERE {free} ORDER BY id", "1")

    def without(
        self, keys: Collection[str], topics: Collection[str] = ()
    ) -> tuple[tuple[str, ...], Mapping[str, object]]:
        """Makes the conditions that a row has none of these keys and topics, and their parameters."""
        conditions, values = list[str](), dict[str, object]()
        for column, names, prefix in ((_TOPIC, topics, "topic_"), (_KEY, keys, "key_")):
            if names:
                condition, given = self.idiom.not_in(column, list(names))
                conditions.append(condition.replace("{", f"{{{prefix}"))
                values |= {f"{prefix}{name}": value for name, value in given.items()}
        return tuple(conditions), values

    def _beginning(self, column: str, most: int, length: int = BEGINNING) -> str:
        """Names a column, of which only the beginning is read where it has more than ``most`` bytes."""
        size, short = self.idiom.byte_length(column), self.idiom.beginning(column, length)
        return f"CASE WHEN {size} > {most} THEN {short} ELSE {column} END AS {column}"

    def _without(self, *absent: str) -> str:
        """Names the columns that are read of a row, null instead of some."""
        return ", ".join(f"NULL AS {column}" if column in absent else column for column in COLUMNS)

    def _sized(self) -> str:
        """Names the columns that are marked, null where they exceed ``{small}`` bytes, and the row's size."""
        sizes = {column: self.idiom.byte_length(column) for column in COLUMNS[1:]}
        small = [
            f"CASE WHEN {size} <= {{small}} THEN {column} END AS {column}" for column, size in sizes.items()
        ]
        total = " + ".join(f"COALESCE({size}, 0)" for size in sizes.values())
        return ", ".join((COLUMNS[0], *small, self._sampled_age, *self.extras, f"{total} AS row_size"))

    def source(self, number: int) -> Source:
        """Returns the source of rows of a condition's index; without conditions, that of all rows."""
        return self._sources[number if len(self._sources) > 1 else 0]

    def _choose(self, lanes: int, conditions: Sequence[str], *, sized: bool = False, number: int = 0) -> str:
        """Makes the SELECT of a source's earliest rows: ``{limit}`` of them, ``{lane}`` of ``{lanes}``.

        Of one in ``{every}`` rows it reads how many seconds ago they were created, behind the columns.

        Args:
            lanes: How many lanes there are.
            conditions: What must hold for a row besides.
            sized: Whether each row comes with its size, and what has more than ``{small}`` bytes as null.
            number: The source. If rows must have an age, the last column tells whether a row is ripe.
        """
        source = self.source(number)
        wanted = [source.condition] if source.condition else []
        wanted += conditions
        if lanes > 1:
            wanted.append(f"{self.idiom.lane_of(self.key)} = {{lane}}")
        wanted.append(self.unparked)
        columns = self._sized() if sized else ", ".join((*COLUMNS, self._sampled_age, *self.extras))
        if source.ripe:
            columns = f"{columns}, {source.ripe} AS is_ripe"
        select = f"SELECT {columns} FROM {self.seen_by(source)} WHERE {' AND '.join(wanted)}"
        return self.idiom.limit(f"{select} ORDER BY {source.order}", "{limit}")

    def ripe_head(self, number: int) -> str:
        """Makes the SELECT that tells whether a source's first row, of whatever lane, is ripe."""
        source = self.source(number)
        select = f"SELECT {source.ripe} FROM {self.seen_by(source)} WHERE {source.condition}"
        return self.idiom.limit(f"{select} ORDER BY {source.order}", "1")

    def newest(self, number: int) -> str:
        """Makes the SELECT of the greatest time from ``{first}`` to ``{last}``, as text; empty without one.

        Of a column's rows it reads no others, of which any number may lie between.
        """
        source, text = self.source(number), self.idiom.time_text
        if not text:
            return ""
        also = f"{source.condition} AND " if source.column else ""
        seen = self.seen_by(source) if source.index else self.idiom.snapshot_read(self.outbox)
        return f"SELECT MAX({text}) FROM {seen} WHERE {also}id BETWEEN {{first}} AND {{last}}"

    def seen_by(self, source: Source) -> str:
        """Writes the outbox in FROM, read by the source's index."""
        idiom = self.idiom
        if source.index:
            return idiom.snapshot_by_index(self.outbox, source.index)
        return idiom.snapshot_by_id(self.outbox)


def stash(idiom: Idiom, outbox: str, columns: Mapping[str, str]) -> str:
    """Makes the INSERT into an outbox, which is quoted, as are the columns → names of parameters."""
    parameters = [f"{{{name}}}" for name in columns.values()]
    if idiom.fills_create_time:
        return f"INSERT INTO {outbox} ({', '.join(columns)}) VALUES ({', '.join(parameters)})"
    names = ", ".join(("create_time", *columns))
    return f"INSERT INTO {outbox} ({names}) VALUES ({', '.join((idiom.stash_now or idiom.now, *parameters))})"
