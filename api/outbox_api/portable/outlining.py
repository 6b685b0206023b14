"""How a portable outbox outlines the rows that wait: their ids, topics and keys, without their values."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter or a literal of its own

from __future__ import annotations

from collections.abc import Sequence

from outbox_api.portable.keeping import chosen_topics
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.seams.fence import Fence
from outbox_api.seams.outbox_table import MAX_OUTLINED_KEY, Outline, Outlined


class Outlining:
    """Reads outlines over one connection, see :meth:`outbox_api.OutboxTable.outline`.

    Args:
        session: The connection.
        sql: The statements of the outbox.
        newest: The expression of the greatest ``create_time``, as text; empty where there is none.
    """

    def __init__(self, session: Session, sql: Statements, newest: str = "") -> None:
        self._session = session
        self._sql = sql
        self._seen = sql.idiom.snapshot_by_id(sql.outbox)
        first = f"SELECT id, create_time FROM {self._seen} WHERE id > {{after}} ORDER BY id"
        window = f"({sql.idiom.limit(first, '{limit}')}) behind"
        self._window = f"SELECT MAX(id), COUNT(*), {newest or 'NULL'} FROM {window}"

    def read(self, fence: Fence, after: int, limit: int, topics: Sequence[str]) -> Outline:
        """Reads an outline.

        Of its statements the last may see rows that were committed after the one before. Where they are newer
        than ``newest``, they are not deleted: that is no harm.
        """
        session, sql = self._session, self._sql
        held = {"name": sql.name, "lane": fence.lane, "lanes": fence.lanes}
        with session.transaction("outline what waits", reads=True):
            if not session.fetch(sql.look, **held, token=fence.token, epoch=fence.epoch):
                raise fence.lost()
            [(last, read, newest)] = session.fetch(self._window, after=after, limit=limit)
            if not read:
                return Outline([])
            values = {**held, **sql.source(0).values, "after": after, "last": int(last)}
            found = session.fetch(self._rows(fence.lanes, topics), **values)
        # Most drivers return text as such, and asking for each would take longer than all else.
        rows = [
            Outlined._make(row if type(row[1]) is type(row[2]) is str else self._texts(*row)) for row in found
        ]
        return Outline(rows, int(last), int(read), sql.idiom.read_text(newest) or "")

    def _texts(self, number: int, topic: object, key: object, part: int | None) -> tuple[object, ...]:
        text = self._sql.idiom.read_text
        return number, text(topic) or "", text(key) or "", part

    def _rows(self, lanes: int, topics: Sequence[str]) -> str:
        sql, idiom = self._sql, self._sql.idiom
        source = sql.source(0)
        wanted = [
            "id > {after} AND id <= {last}",
            idiom.unmarked,
            chosen_topics(idiom, topics),
            f"{idiom.byte_length('kafka_key')} BETWEEN 1 AND {MAX_OUTLINED_KEY}",
            *([source.condition] if source.condition else []),
            *([f"{idiom.lane_of(sql.key)} = {{lane}}"] if lanes > 1 else []),
            sql.unparked,
        ]
        partition = sql.extras[0] if sql.extras else "NULL AS kafka_partition"
        columns = f"id, kafka_topic, kafka_key, {partition}"
        return f"SELECT {columns} FROM {self._seen} WHERE {' AND '.join(wanted)} ORDER BY id"
