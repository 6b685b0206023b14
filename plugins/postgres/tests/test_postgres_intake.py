"""Rows of a table of another layout are taken in, in order, once, and by the leader only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
from outbox_api import DriverError, Intake, Level
from outbox_postgres.intake import PostgresIntake
from outbox_servers.services import PostgresServer

from .outbox_hands import MakeOutbox, Outbox

DEBEZIUM = """
CREATE TABLE outboxevent (
    id UUID PRIMARY KEY,
    aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL,
    type VARCHAR(255) NOT NULL,
    payload JSONB
)
"""
INTAKE = Intake(table="outboxevent", layout="debezium")


@pytest.fixture(scope="module")
def keeper() -> Iterator[PostgresServer]:
    """A server that keeps the moments of commits."""
    with PostgresServer(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.fixture
def debezium(keeper: PostgresServer, make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox(keeper.create_database(f"test_{uuid4().hex}"), intake=INTAKE)
    box.admin.execute(DEBEZIUM)
    box.dialect.create()
    return box


def event(box: Outbox, key: str, payload: str, connection: object = None) -> None:
    (connection or box.admin).execute(  # type: ignore[attr-defined]
        "INSERT INTO outboxevent VALUES (%s, 'order', %s, 'paid', %s)", (uuid4(), key, payload)
    )


def test_debeziums_table_is_harvested_as_it_is(debezium: Outbox) -> None:
    shape = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'outboxevent'"
    before = debezium.admin.execute(shape).fetchall()
    for number in range(100):
        event(debezium, f"k{number % 3}", f'{{"n": {number}}}')
    hand = debezium.lead()
    assert hand.table.backlog().records == 100
    debezium.take_in(hand)
    records = hand.mark()
    assert [record.value for record in records] == [f'{{"n": {number}}}' for number in range(100)]
    assert {record.topic for record in records} == {"outbox.event.order"}
    assert records[0].key == "k0"
    assert records[0].headers[0][0] == "id"
    assert hand.purge(*[record.id for record in records]) == 100
    assert hand.table.backlog().records == 0
    assert debezium.admin.execute(shape).fetchall() == before


def test_without_a_column_for_it_the_order_is_that_of_commits(debezium: Outbox) -> None:
    first, second = debezium.session(), debezium.session()
    # Its transaction is the older one, its commit the later.
    event(debezium, "other", "0", first)
    event(debezium, "k", "1", second)
    with second.transaction():  # a savepoint
        event(debezium, "k", "2", second)
    event(debezium, "k", "3", second)
    second.commit()
    event(debezium, "k", "4", first)
    first.commit()
    marked = debezium.taken().mark()
    assert [record.value for record in marked if record.key == "k"] == ["1", "2", "3", "4"]


MAPPED = Intake(
    table="app.events",
    id="number",
    topic="shop",
    key="customer",
    value="body",
    headers={"kind": "kind"},
    headers_json="more",
    partition="part",
    timestamp="at",
)


@pytest.fixture
def mapped(make_outbox: MakeOutbox) -> Outbox:
    box = make_outbox(intake=MAPPED, value_type="bytea")
    box.admin.execute("CREATE SCHEMA app")
    box.admin.execute(
        "CREATE TABLE app.events (number BIGSERIAL PRIMARY KEY, customer TEXT, body BYTEA, kind TEXT,"
        " more JSONB, part INT, at TIMESTAMPTZ)"
    )
    box.dialect.create()
    return box


def test_nulls_are_taken_in_where_arrays_have_none(mapped: Outbox) -> None:
    mapped.set_default("array_nulls", "off")
    mapped.admin.execute("INSERT INTO app.events (more) VALUES ('{\"trace\": null}')")
    [record] = mapped.taken().mark()
    assert (record.key, record.value, record.fault) == ("", None, None)
    assert list(record.headers) == [("kind", None), ("trace", None)]


def test_a_table_of_somebodys_own_is_mapped(mapped: Outbox) -> None:
    mapped.admin.execute(
        "INSERT INTO app.events (customer, body, kind, more, part, at) VALUES"
        " ('ann', '\\xff00', 'new', '{\"trace\": \"t1\"}', 3, '2026-01-02 00:00:00+00'),"
        " (NULL, NULL, NULL, NULL, NULL, NULL), ('bob', '\\x01', 'new', '[]', NULL, NULL)"
    )
    first, second, third = mapped.taken().mark()
    assert first.value == b"\xff\0"
    assert (first.topic, first.key, first.partition, first.timestamp_ms) == ("shop", "ann", 3, 1767312000000)
    assert list(first.headers) == [("kind", "new"), ("trace", "t1")]
    assert (second.key, second.value, second.partition, second.timestamp_ms) == ("", None, None, None)
    assert third.fault is not None
    assert "row 3 of table app.events cannot be mapped: column 'more' is not a JSON object" in third.fault
    assert (third.key, third.value) == ("bob", b"\x01")


@pytest.mark.parametrize("type_", ["text", "bytea"])
def test_odd_texts_arrive_as_they_are(make_outbox: MakeOutbox, type_: str) -> None:
    texts = ["", "NULL", "null", '"', "\\", "{}", ",", "a b", "\n", "ä€😀", "\\\"{,}'", "%s {x} %%"]
    intake = Intake(table="events", id="id", topic="t", key="k", value="v", headers={"h": "k", '"': "n"})
    box = make_outbox(intake=intake, value_type=type_)
    box.admin.execute("CREATE TABLE events (id int PRIMARY KEY, k text, v text, n text)")
    box.dialect.create()
    for number, text in enumerate(texts):
        box.admin.execute("INSERT INTO events VALUES (%s, %s, %s)", (number, text, text))
    records = box.taken().mark()
    assert [each.value.decode() if isinstance(each.value, bytes) else each.value for each in records] == texts
    assert [each.key for each in records] == texts
    assert [list(each.headers) for each in records] == [[("h", text), ('"', None)] for text in texts]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("part => 'inf'", "column 'part'"),
        ("sent => 'infinity'", "column 'sent' holds no moment"),
        ('more => \'{"a": "\\u0000"}\'', "no NUL character"),
        ('more => \'{"a": "\\ud800"}\'', "surrogates not allowed"),
    ],
)
def test_a_row_that_the_outbox_cannot_hold_stops_no_other(
    make_outbox: MakeOutbox, columns: str, reason: str
) -> None:
    intake = replace(MAPPED, table="events", timestamp="sent", headers={})
    box = make_outbox(intake=intake)
    box.admin.execute(
        "CREATE TABLE events (number BIGSERIAL PRIMARY KEY, customer BYTEA, body TEXT, more JSON,"
        " part FLOAT, sent TIMESTAMPTZ)"
    )
    box.dialect.create()
    name, value = columns.split(" => ")
    box.admin.execute(f"INSERT INTO events (body, {name}) VALUES ('1', {value})")
    box.admin.execute("INSERT INTO events (customer, body) VALUES ('ann', '2')")
    odd, sound = box.taken().mark()
    assert reason in (odd.fault or "")
    assert (sound.key, sound.value, sound.fault) == ("616e6e", "2", None)


def test_rows_that_wait_as_before_once_they_are_done_are_not_taken_in_again_and_again(
    make_outbox: MakeOutbox,
) -> None:
    box = make_outbox(
        intake=Intake(table="events", id="id", topic="t", key="k", value="k", done={"sent": True})
    )
    box.admin.execute("CREATE TABLE events (id int PRIMARY KEY, k text, sent bool)")
    box.admin.execute(
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.sent = OLD.k = 'sound'; RETURN NEW; END $$;"
        " CREATE TRIGGER undo BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION undo()"
    )
    box.admin.execute("INSERT INTO events VALUES (1, 'undone'), (2, 'sound'), (3, 'undone')")
    box.dialect.create()
    assert [record.key for record in box.taken().mark()] == ["sound"]


def test_the_order_within_a_transaction_outlives_an_attempt_that_was_cut_off(
    debezium: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(*numbers: int) -> str:
        return f"(ctid::text::point)[0] IN ({', '.join(map(str, numbers))})"

    # The database writes a transaction's rows into whatever pages have room, not from the first to the last.
    while not debezium.admin.execute(f"SELECT 1 FROM outboxevent WHERE {page(3)}").fetchone():
        event(debezium, "old", f'"{"x" * 300}"')
    debezium.admin.execute(f"DELETE FROM outboxevent WHERE {page(0, 1)}")
    debezium.admin.execute("VACUUM outboxevent")
    event(debezium, "old", "0")
    session = debezium.session()
    values = [f'"{number:04}{"x" * 300}"' for number in range(80)]
    for value in values:
        event(debezium, "k", value, session)
    session.commit()
    places = "SELECT payload #>> '{}' FROM outboxevent WHERE aggregateid = 'k' ORDER BY ctid"
    assert [f'"{row[0]}"' for row in debezium.admin.execute(places)] != values

    hand = debezium.lead()
    with monkeypatch.context() as patch:
        patch.setattr(PostgresIntake, "remove", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            debezium.take_in(hand)
    debezium.take_in(hand)
    assert [record.value for record in hand.mark(1000) if record.key == "k"] == values


def require(box: Outbox) -> None:
    with closing(box.dialect.intakes()) as intakes:
        intakes.require()


def test_what_cannot_be_taken_in_is_said_at_once(make_outbox: MakeOutbox) -> None:
    box = make_outbox(intake=INTAKE)
    box.dialect.create()
    for prepare, reason in (
        ("SELECT 1", "there is no such table"),
        (
            "CREATE TABLE outboxevent (id UUID PRIMARY KEY, payload JSONB)",
            "it lacks aggregatetype, aggregateid",
        ),
        (
            "ALTER TABLE outboxevent ADD aggregatetype TEXT, ADD aggregateid TEXT",
            "track_commit_timestamp = on",
        ),
        ("ALTER TABLE outboxevent DROP id, ADD id BIGSERIAL", None),
        ("ALTER TABLE outboxevent ALTER payload TYPE BYTEA USING NULL", "set valueType: bytea"),
    ):
        box.admin.execute(prepare)
        finding = max(
            (each for each in box.dialect.check() if each.subject == "intake"),
            key=lambda each: list(Level).index(each.level),
        )
        if reason is None:
            assert finding.level is not Level.ERROR
            require(box)
            continue
        assert finding.level is Level.ERROR
        assert reason in finding.message
        with pytest.raises(DriverError, match=reason):
            require(box)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("s TEXT GENERATED ALWAYS AS (k) STORED", "SENT", "generated column"),
        ("s VARCHAR(3)", "SENT", "never equals 'SENT'"),
        ("s INT NOT NULL", None, "is never null"),
    ],
)
def test_a_mark_that_its_column_cannot_hold_is_said_at_once(
    make_outbox: MakeOutbox, column: str, value: str | None, reason: str
) -> None:
    intake = Intake(table="events", id="id", topic="t", key="k", value="k", done={"s": value})
    box = make_outbox(intake=intake)
    box.admin.execute(f"CREATE TABLE events (id BIGSERIAL PRIMARY KEY, k TEXT, {column})")
    box.dialect.create()
    [finding] = [each for each in box.dialect.check() if each.subject == "intake"]
    assert finding.level is Level.ERROR
    assert reason in finding.message
    with pytest.raises(DriverError, match=reason):
        require(box)


def test_a_row_that_a_trigger_keeps_out_of_the_outbox_is_not_lost(make_outbox: MakeOutbox) -> None:
    box = make_outbox(intake=Intake(table="events", id="id", topic="t", key="k", value="k"))
    box.admin.execute("CREATE TABLE events (id BIGSERIAL PRIMARY KEY, k TEXT)")
    box.admin.execute("INSERT INTO events (k) VALUES ('a'), ('dropped'), ('b')")
    box.dialect.create()
    box.admin.execute(
        "CREATE FUNCTION drop_some() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.kafka_key = 'dropped' THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        " CREATE TRIGGER drop_some BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION drop_some()"
    )
    assert [record.key for record in box.taken().mark()] == ["a", "b"]
    assert box.admin.execute("SELECT k FROM events").fetchall() == [("dropped",)]
