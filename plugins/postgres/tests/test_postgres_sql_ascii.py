"""A database without an encoding: bytes that are no text stop no record but their own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from outbox_sdk import UNBOUNDED, Batch, DeadLetterStatus
from outbox_servers.services import Postgres
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox


@pytest.fixture
def outbox(postgres_server: Postgres, make_outbox: MakeOutbox) -> Iterator[Outbox]:
    name = f"raw_{uuid4().hex}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    box = make_outbox(make_conninfo(postgres_server.dsn, dbname=name), table='"Büro"')
    box.dialect.create()
    box.admin.execute("SET client_encoding TO 'UTF8'")
    yield box
    postgres_server.drop_database(name)


def write(outbox: Outbox, column: str, octets: str) -> None:
    """Writes three rows of which the first has bytes, as an escape string, in a column."""
    outbox.admin.execute(
        "INSERT INTO \"Büro\" (kafka_topic, kafka_key, kafka_value) VALUES ('t', 'a', '1'), ('t', 'a', '2'), "
        "('t', 'é', 'ü')"
    )
    value = f"ARRAY[E'{octets}']" if "header" in column else f"E'{octets}'"
    ids = "1, 2" if column == "kafka_key" else "1"
    outbox.admin.execute(f'UPDATE "Büro" SET {column} = {value} WHERE id IN ({ids})')


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("kafka_topic", "the row's topic is not UTF-8"),
        ("kafka_key", "the row's key is not UTF-8"),
        ("kafka_header_keys", "the row's header names are not UTF-8"),
    ],
)
@pytest.mark.parametrize("max_bytes", [UNBOUNDED, 10**6])
def test_what_is_no_text_is_a_fault_of_its_row_and_parks_its_key(
    outbox: Outbox, column: str, fault: str, max_bytes: int
) -> None:
    write(outbox, column, r"x\377")
    hand, letters = outbox.lead(), outbox.dead_letters()
    odd, tail, sound = marked = hand.mark(max_bytes=max_bytes)
    assert hand.table.rows(Batch(((1, 3),))) == [record._replace(created=None) for record in marked]
    assert fault in (odd.fault or "")
    assert tail.key == odd.key
    assert (sound.key, sound.value, sound.fault) == ("é", "ü", None)
    hand.purge(sound.id)
    assert hand.park([odd.id, tail.id], odd.id, reason=f"{odd.fault} \xff") == 1
    assert hand.mark() == []
    (letter,) = letters.find([odd.key])
    assert fault in (letter.record.fault or "")
    assert letters.waiting(odd.key) == 2
    assert letters.skip([odd.id]) == [odd.id]
    assert hand.ids() == [tail.id]
    assert [letter.status for letter in letters.find([odd.key])] == [DeadLetterStatus.SKIPPED]
    assert letters.redrive([odd.id]) == [odd.id]
    (again,) = hand.mark()
    assert (again.key, again.topic, again.value) == (odd.key, odd.topic, "1")


def test_values_are_bytes_where_they_are_no_text(outbox: Outbox) -> None:
    write(outbox, "kafka_value", r"v\377")
    outbox.admin.execute(
        "UPDATE \"Büro\" SET kafka_header_keys = '{h}', kafka_header_values = ARRAY[E'\\377'] WHERE id = 2"
    )
    hand = outbox.lead()
    first, second, third = hand.mark()
    assert (first.value, first.fault) == (b"v\xff", None)
    assert (second.value, list(second.headers), second.fault) == ("2", [("h", b"\xff")], None)
    assert third.value == "ü"
    hand.park([first.id], first.id)
    (letter,) = outbox.dead_letters().find()
    assert letter.record.value == b"v\xff"


def test_keys_that_are_no_text_are_excluded_as_they_are_read(outbox: Outbox) -> None:
    write(outbox, "kafka_key", r"x\377")
    hand = outbox.lead()
    assert hand.ids(excluded=["é"]) == [1, 2]
    hand.reset(1, 2)
    assert hand.ids(excluded=["x\\xff", "other"]) == [3]
    assert hand.ids() == [1, 2]
