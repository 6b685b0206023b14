"""Change data capture: the log of the database, or triggers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from bench.methods.method import LIMIT, Method, Place, Row
from bench.methods.offsets import COLUMNS, sent

SLOT = "methods"
PUBLICATION = """
DROP PUBLICATION IF EXISTS methods; CREATE PUBLICATION methods FOR TABLE outbox (id, kafka_key, kafka_value);
"""
_INSERT = b"I"


def inserted(change: bytes) -> Row | None:
    """Returns the record of a message of ``pgoutput``; ``None`` if it is no INSERT."""
    if change[:1] != _INSERT:
        return None
    place, columns = 8, []  # behind the kind, the table's number, N, and the number of columns
    for _ in range(int.from_bytes(change[6:8])):
        size = int.from_bytes(change[place + 1 : place + 5])
        columns.append(change[place + 5 : place + 5 + size].decode())
        place += 5 + size
    number, key, value = columns
    return Row(int(number), key, value)


@dataclass
class Log:
    """Reads a replication slot, and moves it on behind what was sent."""

    place: Place

    def poll(self) -> Generator[None]:
        """Reads changes in the order of commits, sends them, then moves the slot."""
        if not self.place.all("SELECT FROM pg_replication_slots WHERE slot_name = %s", SLOT):
            yield from self._begin()
        peek = "pg_logical_slot_peek_binary_changes(%s, NULL, %s, %s, %s, %s, %s)"
        options = ("proto_version", "1", "publication_names", "methods")
        changes = self.place.all(f"SELECT lsn::text, data FROM {peek}", SLOT, LIMIT, *options)
        rows = [row for _, change in changes if (row := inserted(change))]
        yield from sent(self.place, rows)
        if changes:
            self.place.all("SELECT pg_replication_slot_advance(%s, %s)", SLOT, changes[-1][0])

    def _begin(self) -> Generator[None]:
        """Makes the slot, then sends what the table has."""
        self.place.all("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", SLOT)
        yield from sent(self.place, self.place.rows(f"SELECT {COLUMNS} FROM outbox ORDER BY id"))


TRIGGER = """
CREATE TABLE captured (seq bigserial PRIMARY KEY, id bigint, kafka_key text, kafka_value text);
CREATE FUNCTION capture() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO captured (id, kafka_key, kafka_value) VALUES (NEW.id, NEW.kafka_key, NEW.kafka_value);
RETURN NEW; END $$;
CREATE TRIGGER capture AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION capture();
CREATE TABLE reached (seq bigint); INSERT INTO reached VALUES (0);
"""


@dataclass
class Captured:
    """Reads the table that a trigger writes, by its sequence."""

    place: Place

    def poll(self) -> Generator[None]:
        """Reads behind the last number, sends, then stores the last."""
        [(reached,)] = self.place.all("SELECT seq FROM reached")
        query = f"SELECT {COLUMNS}, seq FROM captured WHERE seq > %s ORDER BY seq LIMIT {LIMIT}"
        found = self.place.all(query, reached)
        yield from sent(self.place, [Row(*row[:3]) for row in found])
        if found:
            self.place.run("UPDATE reached SET seq = %s", found[-1][3])


METHODS = (Method("log", Log, PUBLICATION), Method("trigger", Captured, TRIGGER))
