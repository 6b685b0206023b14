"""How the stasher writes into a portable outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.rows import header_texts
from outbox_sdk.record import Record

_COLUMNS = "create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"


def portable_insert(
    idiom: Idiom, refuse: Callable[[Record], str] = lambda _record: ""
) -> Callable[[str], Insert]:
    """Returns what a plugin's ``Driver`` offers as ``insert``.

    Args:
        idiom: How the database writes SQL.
        refuse: Says why the database cannot hold a record, or nothing.
    """

    def bind(record: Record) -> Mapping[str, object]:
        names, values = header_texts(record)
        for text in (record.topic, record.key, record.value, names, values):
            if isinstance(text, str):
                text.encode()  # raises for half of a surrogate pair
        if problem := refuse(record):
            raise ValueError(problem)
        return {
            "topic": record.topic,
            "key": record.key,
            "value": record.value,
            "header_names": names,
            "header_values": values,
        }

    def insert(table: str) -> Insert:
        name = idiom.table(TableName.parse(table)).replace("{", "{{").replace("}", "}}")
        values = f"{idiom.now}, {{topic}}, {{key}}, {{value}}, {{header_names}}, {{header_values}}"
        return Insert(sql=f"INSERT INTO {name} ({_COLUMNS}) VALUES ({values})", bind=bind)  # noqa: S608 - quoted

    return insert
