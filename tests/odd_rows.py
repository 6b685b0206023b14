"""Makes rows with everything that the columns of an outbox may contain, for each database."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple
from uuid import UUID

from outbox_api.portable.sources import EXTRAS

from .databases import Database
from .odd_transform import KINDS

TEXTS = (
    *(
        "",
        " ",
        ".",
        "..",
        "/",
        "a b",
        "ü",
        "\U0001f600",
        "\u202e",
        "\x01",
        "\x7f",
        "\ufeff",
        "\uffff",
        "\x85",
    ),
    *(
        "'",
        '"',
        "`",
        "\\",
        "\r\n",
        "\t",
        "%s",
        "{0}",
        "{topic}",
        "$1",
        "null",
        "NaN",
        "1e999",
        "-0",
        "[",
        "{",
    ),
    *("\0", "a\0b", "\ud800", "x\udfff", "e\u0301" * 50, "w" * 249, "w" * 250, "[" * 2000, "9" * 5000),
    *("outbox.checkpoints", "x.neli", "__consumer_offsets", "__transaction_state", "outbox-id"),
    *(
        '{"a":1}',
        '{"topic":""}',
        '{"topic":"a\\u0000b"}',
        '{"topic":"\\ud800"}',
        '{"topic":NaN}',
        '{"a":1.1e400}',
    ),
)
"""For topics, keys, values and headers."""
LONG = ("k" * 65_000, "k" * 70_000, "\U0001f600" * 20_000, "v" * 1_500_000)
"""Longer than something permits; each once in many rows."""
RARE = 400
"""One of so many rows has a long text."""
_JSON = (
    *(
        "",
        "[]",
        "null",
        "{}",
        "1",
        '"a"',
        "[1]",
        "[null]",
        "[[]]",
        '["a", "b"]',
        '["\\ud800"]',
        '["a\\u0000"]',
    ),
    *(
        "[" * 50_000,
        '[""]',
        '["outbox: "]',
        '["x"] ',
        '["a"',
        "[NaN]",
        "[1e999]",
        '["ü"]',
        '["' + "h" * 9000 + '"]',
    ),
)
_ARRAYS: tuple[list[Any], ...] = (
    [],
    ["a"],
    [None],
    [""],
    ["a", "b"],
    [["a"], ["b"]],
    ["outbox: "],
    ["h" * 9000],
)
_TIMES: Mapping[str, Sequence[object]] = {
    "postgres": (
        "infinity",
        "-infinity",
        "294276-12-31 23:59:59+00",
        "4713-01-01 00:00:00+00 BC",
        "0001-01-01",
    ),
    "mysql": ("1000-01-01", "9999-12-31 23:59:59.999999", "0000-00-00", "2024-02-31", "0000-01-01"),
    "sqlite": (
        "",
        "never",
        12345,
        b"\xff",
        9e18,
        -1,
        "294276-12-31",
        "-4713-11-24 12:00:00",
        "9999-12-31 24:00",
    ),
}
_PARTITIONS = (0, 3, 99, -1, -2, 2**31 - 1, -(2**31))
_MOMENTS = (0, 1, -1, -2, 10**12, 9 * 10**15, 10**17, 2**63 - 1, -(2**63))
_NO_POSTGRES = {"\0", "\ud800"}
"""What its texts cannot have."""
_UUID = str(UUID(int=7))
_LEADERS = {
    "postgres": (_UUID,),
    "mysql": (_UUID, "", "x" * 36, None),
    "sqlite": (_UUID, "", "x" * 900, None),
}
_ANYTHING = (0, -1, 2**63 - 1, 1.5, float("inf"), b"", b"\xff\xfe", b"\0")
"""For any column of SQLite."""

INTAKE = {
    "table": "source",
    "id": "id",
    "topic": "{topic}",
    "key": "key",
    "value": "value",
    "partition": "part",
    "timestamp": "moment",
}
"""A section by which an outbox has columns for partition and timestamp."""
_SOURCE = (
    "CREATE TABLE source (id BIGINT PRIMARY KEY, topic VARCHAR(99), {key} VARCHAR(99), value VARCHAR(99),"
    " part INTEGER, moment BIGINT)"
)


class Text(NamedTuple):
    """A text of SQLite that is not UTF-8."""

    octets: bytes


class OddRows:
    """Rows of one database.

    Args:
        driver: The dialect's driver.
        topic: The topic of most rows; others begin with its name.
        chance: Decides.
        transforms: Whether records are for ``odd_transform``, too.
    """

    def __init__(self, driver: str, topic: str, chance: random.Random, *, transforms: bool = False) -> None:
        self._driver = driver
        self._topic = topic
        self._chance = chance
        self._transforms = transforms
        self._texts = [text for text in TEXTS if driver != "postgres" or not set(text) & _NO_POSTGRES]
        self._topics = [None, *map(self._name, (*self._texts, "small", "recent", "missing"))]

    def _name(self, text: str) -> str:
        """Returns a text as a topic: one of this trial's own where it is a name of Kafka's."""
        usual = re.fullmatch("[a-zA-Z0-9_-]+", text) and not text.startswith("__")
        return f"{self._topic}-{text}"[:249] if usual else text

    def rows(self, count: int) -> Iterator[dict[str, object]]:
        """Yields rows: column → value. Most keys end with ``#`` and the row's number."""
        for number in range(count):
            row = self._row(number)
            if self._transforms and number % 2:
                kind = self._chance.randrange(len(KINDS))
                row["kafka_key"] = f"t{kind}:#{number}"
                row["kafka_topic"] = self._topic
                if self._chance.random() < 0.5:
                    row["kafka_value"] = json.dumps({"topic": self._chance.choice(TEXTS)})
            yield row

    def _row(self, number: int) -> dict[str, object]:
        choose, often = self._chance.choice, self._chance.random
        row: dict[str, object] = {"kafka_topic": self._topic, "kafka_key": f"{choose(self._texts)}#{number}"}
        changes: Mapping[str, Callable[[], object]] = {
            "kafka_topic": lambda: choose(self._topics),
            "kafka_key": lambda: choose(["", None, row["kafka_key"]]),
            "kafka_value": lambda: choose([None, "v" * 9000, *self._texts]),
            "headers": lambda: self._headers(row),
            "create_time": lambda: choose([None, *_TIMES[self._driver]]),
            "leader_id": lambda: choose(_LEADERS[self._driver]),
            "id": lambda: choose([-number, number + 1 - 2**63]),
            EXTRAS[0]: lambda: choose(_PARTITIONS),
            EXTRAS[1]: lambda: choose(_MOMENTS),
        }
        row["kafka_value"] = choose(self._texts)
        for column in self._chance.sample(list(changes), k=choose([1, 1, 1, 2, 3])):
            row[column] = changes[column]()
        row.pop("headers", None)
        if often() < 1 / RARE:
            row[choose(["kafka_key", "kafka_value", "kafka_topic"])] = f"{choose(LONG)}#{number}"
        if self._driver == "sqlite" and often() < 0.1:
            column = choose(["kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", *EXTRAS])
            row[column] = choose([*_ANYTHING, Text(b"\xff\xfe"), Text(f"\xe9#{number}".encode("latin1"))])
            if column == "kafka_topic" and isinstance(row[column], int | float):
                row[column] = f"{self._topic}-{row[column]}"
        return row

    def _headers(self, row: dict[str, object]) -> None:
        pool: Sequence[object] = _ARRAYS if self._driver == "postgres" else _JSON
        row["kafka_header_keys"], row["kafka_header_values"] = self._chance.choices(pool, k=2)
        if self._chance.random() < 0.5:
            names, values = (self._chance.choices(self._texts, k=2) for _ in range(2))
            plain = self._driver == "postgres"
            row["kafka_header_keys"] = names if plain else json.dumps(names)
            row["kafka_header_values"] = values if plain else json.dumps(values)


class Writer:
    """Inserts rows, each of which the database may refuse.

    Args:
        database: The database.

    Attributes:
        written: The rows that it has taken.
        refused: How many it has refused.
    """

    def __init__(self, database: Database) -> None:
        self.written: list[Mapping[str, object]] = []
        self.refused = 0
        self._driver = database.driver
        self._connection = database.connect()
        if self._driver == "mysql":
            self._connection.cursor().execute(
                "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,STRICT_ALL_TABLES'"
            )
        if self._driver == "postgres":
            self._connection.autocommit = True

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Inserts rows, and commits them."""
        for row in rows:
            columns = list(row)
            places = ", ".join(self._place(column, row[column]) for column in columns)
            values = [value.octets if isinstance(value, Text) else value for value in row.values()]
            statement = f"INSERT INTO outbox ({', '.join(columns)}) VALUES ({places})"
            try:
                with closing(self._connection.cursor()) as cursor:
                    cursor.execute(statement, values)
            except Exception:  # noqa: BLE001 - whatever a driver raises for it
                self.refused += 1
            else:
                self.written.append(row)
        self._connection.commit()

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()

    def _place(self, column: str, value: object) -> str:
        if self._driver == "sqlite":
            return "CAST(? AS TEXT)" if isinstance(value, Text) else "?"
        if self._driver != "postgres":
            return "%s"
        types = {"create_time": "timestamptz", "leader_id": "uuid", "id": "bigint", EXTRAS[0]: "int"}
        lists = {"kafka_header_keys": "text[]", "kafka_header_values": "text[]", EXTRAS[1]: "bigint"}
        return f"%s::{(types | lists).get(column, 'text')}"


_NULLABLE = {
    "postgres": "ALTER {} DROP NOT NULL",
    "mysql": "MODIFY {} {}",
}
_COLUMNS = {"kafka_topic": "VARCHAR(249)", "kafka_key": "TEXT", "create_time": "DATETIME(6)"}


def permit_nulls(database: Database) -> None:
    """Permits nulls in all columns, as far as the database can, as tables of other tools do."""
    if change := _NULLABLE.get(database.driver):
        changes = ", ".join(change.format(column, type_) for column, type_ in _COLUMNS.items())
        with closing(database.connect()) as connection:
            connection.cursor().execute(f"ALTER TABLE outbox {changes}")
            connection.commit()


def create_source(database: Database) -> None:
    """Creates the table of ``INTAKE``, which stays empty."""
    quote = "`key`" if database.driver == "mysql" else "key"
    with closing(database.connect()) as connection:
        connection.cursor().execute(_SOURCE.format(key=quote))
        connection.commit()
