"""What the check finds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest
from outbox_api import Level
from outbox_api.support import tls
from outbox_postgres import check
from outbox_postgres.check_queries import SERVER_PROBES
from outbox_servers.services import PostgresServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask, until


def troubles(box: Outbox) -> dict[str, str]:
    """Subject → message and cure of everything that is not well."""
    findings = box.dialect.check()
    assert all(finding.cure for finding in findings if finding.level != Level.OK)
    return {f.subject: f"{f.level}: {f.message}; {f.cure}" for f in findings if f.level != Level.OK}


def test_all_is_well_with_a_table_of_our_own(outbox: Outbox) -> None:
    assert troubles(outbox) == {}
    subjects = {finding.subject for finding in outbox.dialect.check()}
    assert {
        "connection",
        "server version",
        "outbox table",
        "fence table",
        "dead-letter table",
        "primary key",
        "pooler",
    } <= subjects


def test_a_server_without_tls_on_another_machine(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with outbox.dialect.stash_connection() as connection:
        encrypted = connection.pgconn.ssl_in_use
    monkeypatch.setattr(tls, "is_local", lambda _: False)
    [transport] = [finding for finding in outbox.dialect.check() if finding.subject == "transport"]
    assert transport.level is Level.WARNING
    assert ("in clear" in transport.message) is not encrypted
    assert ("switch ssl on there" in transport.message) is not encrypted
    assert "sslmode=verify-full" in transport.cure


@pytest.mark.parametrize("table", ["outbox_fence", "outbox_dead_letters"])
def test_a_missing_auxiliary_table_is_an_error_and_is_not_created(outbox: Outbox, table: str) -> None:
    outbox.admin.execute(f"DROP TABLE {table}")
    (found,) = [trouble for subject, trouble in troubles(outbox).items() if subject.endswith("table")]
    assert found.startswith("error")
    assert "run 'outbox init'" in found
    assert ask(outbox.admin, "SELECT to_regclass(%s)", table) is None


def test_the_cure_of_a_missing_outbox_is_a_command(make_outbox: MakeOutbox) -> None:
    found = make_outbox(table="nowhere").dialect.check()
    assert [each.cure for each in found if each.subject == "outbox table"] == ["run 'outbox init'"]


def test_a_goharvest_table_works_and_could_be_faster(make_outbox: MakeOutbox) -> None:
    box = make_outbox()
    box.admin.execute(
        "CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, create_time TIMESTAMP WITH TIME ZONE NOT NULL, "
        "kafka_topic VARCHAR(249) NOT NULL, kafka_key VARCHAR(100) NOT NULL, kafka_value VARCHAR(10000), "
        "kafka_header_keys TEXT[] NOT NULL, kafka_header_values TEXT[] NOT NULL, leader_id UUID)"
    )
    box.dialect.create()
    found = troubles(box)
    assert set(found) == {"fill factor", "vacuum threshold"}
    assert found["fill factor"].startswith("warning")
    cure = found["vacuum threshold"].partition("; ")[2]
    assert cure.startswith("ALTER TABLE public.outbox SET (")
    box.admin.execute(cure)
    assert "vacuum threshold" not in troubles(box)


def test_faults_of_the_table(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ALTER COLUMN leader_id TYPE text, DROP COLUMN kafka_value")
    messages = [f.message for f in outbox.dialect.check() if f.level == Level.ERROR]
    assert any("'leader_id' has type text" in message for message in messages)
    assert any("'kafka_value' is missing" in message for message in messages)


def test_what_costs_performance_or_a_guarantee(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
    outbox.admin.execute("CREATE INDEX unmarked ON outbox (id) WHERE leader_id IS NULL")
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq CACHE 20")
    outbox.admin.execute("ALTER TABLE outbox SET (autovacuum_enabled = false, fillfactor = 100)")
    outbox.admin.execute("ALTER TABLE outbox SET UNLOGGED")
    outbox.admin.execute("CREATE RULE keep AS ON DELETE TO outbox DO INSTEAD NOTHING")
    found = troubles(outbox)
    assert set(found) == {
        "primary key", "leader id index", "record ids", "table vacuum", "fill factor", "triggers and rules",
        "table durability",
    }  # fmt: skip
    assert "index unmarked holds leader_id" in found["leader id index"]
    assert "CACHE 1" in found["record ids"]
    assert "keep" in found["triggers and rules"]


def test_ids_of_which_an_application_gives_out_many_at_a_time(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq INCREMENT 50")  # as a pool of JPA has it
    assert "INCREMENT 1" in troubles(outbox)["record ids"]
    assert outbox.connect()._layout.sequence is None, "each mark reads from the head"


def test_triggers_and_foreign_keys_on_the_harvesters_way(outbox: Outbox) -> None:
    outbox.admin.execute(
        "CREATE TABLE child (id bigint REFERENCES outbox);"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;"
        "CREATE TRIGGER on_insert AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION f();"
        "CREATE TRIGGER on_update AFTER UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION f();"
    )
    messages = [f.message for f in outbox.dialect.check() if f.subject == "triggers and rules"]
    assert len(messages) == 2
    assert any("on_update" in message for message in messages)
    assert any("child" in message for message in messages)


def test_a_table_that_inherits_the_outbox_is_named(outbox: Outbox) -> None:
    outbox.admin.execute("CREATE TABLE old () INHERITS (outbox)")
    [found] = [f for f in outbox.dialect.check() if f.subject == "inheritance"]
    assert "rows of table public.old" in found.message
    assert found.cure == "ALTER TABLE public.old NO INHERIT public.outbox"


def test_a_user_without_rights(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    name = f"reader_{uuid4().hex[:8]}"
    outbox.admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
    outbox.admin.execute(f"GRANT SELECT, UPDATE, DELETE ON outbox TO {name}")
    outbox.admin.execute(
        "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; REVOKE CREATE ON SCHEMA public FROM public"
    )
    outbox.admin.execute("DROP TABLE outbox_fence, outbox_dead_letters")
    try:
        found = troubles(make_outbox(make_conninfo(outbox.dsn, user=name, password="s3cret")))
        assert set(found) == {
                "row security", "fence table", "table of notes", "dead-letter table", "old transactions",
                "record ids",
            }  # fmt: skip
        assert 'GRANT SELECT, INSERT, UPDATE ON "public"."outbox_fence"' in found["fence table"]
        assert "GRANT SELECT, INSERT, UPDATE, DELETE" in found["dead-letter table"]
        assert f"ALTER ROLE {name} BYPASSRLS, or ALTER TABLE public.outbox DISABLE" in found["row security"]
    finally:
        outbox.admin.execute(f"DROP OWNED BY {name}")
        outbox.admin.execute(f"DROP ROLE {name}")


def test_a_missing_table(make_outbox: MakeOutbox) -> None:
    assert "outbox init" in troubles(make_outbox(table="nowhere"))["outbox table"]


def test_a_database_that_does_not_answer_or_is_not_named(make_outbox: MakeOutbox) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = troubles(make_outbox(f"host=127.0.0.1 port={port} user=u password=s3cret dbname=d"))
    assert set(found) == {"connection"}
    assert "s3cret" not in str(found)
    assert set(troubles(make_outbox("s3cret"))) == {"data source"}


def test_a_read_only_database(outbox: Outbox) -> None:
    outbox.set_default("default_transaction_read_only", "on")
    assert "read-only" in troubles(outbox)["outbox table"]


def test_a_server_that_promises_little(make_outbox: MakeOutbox) -> None:
    settings: dict[str, str | int] = {
        "fsync": "off",
        "synchronous_commit": "off",
        "autovacuum": "off",
        "max_prepared_transactions": 1,
    }
    with PostgresServer(settings=settings) as server:
        box = make_outbox(server.dsn)
        box.dialect.create()
        durability = [f.message for f in box.dialect.check() if f.subject == "durability"]
        (fsync, synchronous_commit) = sorted(durability)
        assert "exactly-once delivery repeats" in fsync
        assert "records that were committed" in synchronous_commit
        assert "exactly-once" not in synchronous_commit, "advances wait for the disk all the same"
        found = troubles(box)
        assert set(found) == {"durability", "autovacuum"}


def test_standbys_that_may_lack_what_was_committed(make_outbox: MakeOutbox) -> None:
    with PostgresServer() as server:
        box = make_outbox(server.dsn)
        box.dialect.create()
        assert "standbys" not in troubles(box)
        logical = psycopg.connect(server.dsn, replication="database", autocommit=True)
        assert "standbys" not in troubles(box)
        with logical, psycopg.connect(server.dsn, replication="true", autocommit=True):
            assert "exactly-once delivery can repeat" in troubles(box)["standbys"]
            box.admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'one'")
            box.admin.execute("SELECT pg_reload_conf()")
            until(lambda: "standbys" not in troubles(box))


def test_transactions_that_were_left_open(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    (probe,) = (probe for probe in SERVER_PROBES if probe.subject == "old transactions")
    impatient = probe.sql.replace("interval '10 minutes'", "interval '0'")
    monkeypatch.setattr(
        check, "SERVER_PROBES", [type(probe)("old", impatient, probe.level, probe.cure, probe.well)]
    )
    idle = outbox.session()
    idle.execute("SELECT 1")
    messages = [f.message for f in outbox.dialect.check() if f.subject == "old"]
    assert any(f"process {idle.info.backend_pid} " in message for message in messages)


class Proxy:
    """Stands between client and server, and hands out process ids of its own as poolers do."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, rename: bool) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(65536):
                at = data.find(b"K\x00\x00\x00\x0c") if rename else -1
                if at >= 0:
                    data, rename = data[: at + 5] + b"\x00\x00\x00\x01" + data[at + 9 :], False
                target.sendall(data)


@pytest.fixture
def proxy(postgres_dsn: str) -> Iterator[Proxy]:
    where = conninfo_to_dict(postgres_dsn)
    between = Proxy(str(where["host"]), int(where.get("port") or 5432))
    yield between
    between.close()


def test_a_pooler_in_session_mode(outbox: Outbox, make_outbox: MakeOutbox, proxy: Proxy) -> None:
    box = make_outbox(make_conninfo(outbox.dsn, port=proxy.port))
    found = troubles(box)
    assert set(found) == {"pooler"}
    assert found["pooler"].startswith("warning")
