"""What `outbox check` says, and errors that users meet when they set things up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from outbox_api import AccessDenied, DriverError, Finding, Intake, Level
from outbox_mysql import MySqlDialect, MySqlOptions, check
from outbox_mysql.options import DataSource
from outbox_servers.certificates import Authority
from outbox_servers.services.external import MySql, connect_mysql
from outbox_servers.services.mysql import MariaDbServer
from outbox_testkit.conformance import OutboxUnderTest

from .users import connection_of, create_user, signed_in

LOOSE: dict[str, str | int] = {
    "innodb-flush-log-at-trx-commit": 2,
    "log-bin": "binlog",
    "server-id": 1,
    "binlog-format": "STATEMENT",
    "sync-binlog": 0,
    "read-only": "ON",
    "auto-increment-increment": 2,
    "max-allowed-packet": 1 << 20,
}


def a_dialect(under: OutboxUnderTest, **options: Any) -> MySqlDialect:
    return MySqlDialect(MySqlOptions(**{**under.options, **options}))


def faults(dialect: MySqlDialect) -> dict[str, Finding]:
    found = {finding.subject: finding for finding in dialect.check() if finding.level is not Level.OK}
    assert all(finding.cure for finding in found.values())
    return found


def root(under: OutboxUnderTest) -> Any:
    return connect_mysql(under.options["data_source"].partition("?")[0], autocommit=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a stranger, and the key and certificate of a server named 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "ca")
    Authority(folder, "stranger")
    own = authority.issue("server", ["127.0.0.1"])
    own.certificate.rename(folder / "cert.pem")
    own.key.rename(folder / "key.pem")
    return folder


@pytest.fixture(scope="module")
def loose(certificates: Path) -> Iterator[MySql]:
    """A server of MariaDB that is set up for anything but an outbox, and speaks TLS."""
    tls = {f"ssl-{name}": str(certificates / f"{name}.pem") for name in ("ca", "cert", "key")}
    with MariaDbServer(settings={**LOOSE, **tls}) as server:
        yield server


def test_a_server_that_is_set_up_for_anything_else(loose: MySql) -> None:
    dialect = MySqlDialect(MySqlOptions(data_source=loose.create_database(f"d{uuid4().hex}")))
    with pytest.raises(DriverError, match="set binlog_format"):  # the tables are there, without their note
        dialect.create()
    found = faults(dialect)
    assert {subject: finding.level for subject, finding in found.items()} == {
        "durability": Level.WARNING,
        "binary log": Level.ERROR,
        "read-only server": Level.ERROR,
        "ids": Level.WARNING,
        "packet size": Level.WARNING,
        "version of the tables": Level.WARNING,
    }
    assert "sync_binlog = 1" in found["durability"].cure


def test_a_server_that_is_read_only_may_be_so_for_a_while(loose: MySql) -> None:
    source = loose.create_database(f"d{uuid4().hex}")
    with connect_mysql(source, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER plain@'%' IDENTIFIED BY 'plain'")
        cursor.execute(f"GRANT ALL ON {DataSource.parse(source).database}.* TO plain@'%'")
    address = DataSource.parse(source)
    plain = f"mysql://plain:plain@{address.host}:{address.port}/{address.database}"
    with pytest.raises(DriverError, match="read-only") as caught:
        MySqlDialect(MySqlOptions(data_source=plain)).create()
    assert caught.value.retryable


def test_tls_is_verified_when_an_authority_is_named(loose: MySql, certificates: Path) -> None:
    source = loose.create_database(f"d{uuid4().hex}")

    def cipher(query: str, source: str = source) -> str:
        session = MySqlDialect(MySqlOptions(data_source=f"{source}?{query}")).open()
        try:
            with session.cursor() as cursor:
                cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
                return str(cursor.fetchone()[1])
        finally:
            session.close()

    assert cipher("ssl-mode=DISABLED") == ""
    assert cipher("")
    assert cipher("ssl-mode=REQUIRED")
    assert cipher(f"ssl-ca={certificates}/ca.pem")
    assert cipher(f"ssl-ca={certificates}/ca.pem&ssl-mode=VERIFY_IDENTITY")
    by_name = source.replace("127.0.0.1", "localhost")
    assert cipher(f"ssl-ca={certificates}/ca.pem", by_name)
    for query, where, problem in (
        (f"ssl-ca={certificates}/stranger.pem", source, "unknown authority .* set ssl-ca"),
        (f"ssl-ca={certificates}/ca.pem&ssl-mode=VERIFY_IDENTITY", by_name, "for another host name"),
    ):
        with pytest.raises(DriverError, match=problem) as caught:
            MySqlDialect(MySqlOptions(data_source=f"{where}?{query}")).connect()
        assert not caught.value.retryable


def test_privileges_that_are_missing_are_named(under: OutboxUnderTest) -> None:
    dialect, name = a_dialect(under), f"u{uuid4().hex[:20]}"
    dialect.create()
    address = DataSource.parse(under.options["data_source"])
    beside = ("outbox_fence", "outbox_fence_notes", "outbox_dead_letters")
    with root(under) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {name}@'%' IDENTIFIED BY 'pässword'")
        for table in (dialect.options.table, *beside):
            cursor.execute(f"GRANT SELECT, INSERT ON {address.database}.{table} TO {name}@'%'")
        source = f"mysql://{name}:p%C3%A4ssword@{address.host}:{address.port}/{address.database}"
        [found] = [f for f in a_dialect(under, data_source=source).check() if f.level is Level.ERROR]
        assert found.subject == "privileges"
        assert found.cure.startswith("GRANT UPDATE, DELETE ON ")
        assert f"`{dialect.options.table}` TO" in found.cure
        assert found.message.count("UPDATE") == 4
        [account] = [f for f in a_dialect(under, data_source=source).check() if f.subject == "account"]
        assert account.cure == "check with the file of the account that harvests"
        hand = a_dialect(under, data_source=source).connect()
        with pytest.raises(AccessDenied, match="GRANT"):
            hand.bump(1, "x")
        hand.close()
        cursor.execute(f"REVOKE ALL, GRANT OPTION FROM {name}@'%'")
        with pytest.raises(AccessDenied):
            a_dialect(under, data_source=source).connect()
        cursor.execute(f"DROP USER {name}@'%'")
    with pytest.raises(AccessDenied, match="correct the user in dataSource, or the password") as caught:
        a_dialect(under, data_source=source).connect()
    assert "pässword" not in str(caught.value)


def test_a_database_that_is_not_there(under: OutboxUnderTest) -> None:
    address = DataSource.parse(under.options["data_source"])
    nowhere = under.options["data_source"].replace(f"/{address.database}", "/nowhere")
    with pytest.raises(DriverError, match="CREATE DATABASE") as caught:
        a_dialect(under, data_source=nowhere).connect()
    assert not caught.value.retryable
    with pytest.raises(DriverError) as caught:
        a_dialect(under, data_source="mysql://u@127.0.0.1:1/shop").connect()
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        ("ENGINE = MyISAM", "engine"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, create_time)", "primary key"),
        ("ADD INDEX (leader_id)", "leader_id"),
        ("MODIFY leader_id BINARY(16)", "leader_id"),
        ("MODIFY create_time DATETIME(6) NOT NULL", "create_time"),
        ("MODIFY kafka_key VARCHAR(100) CHARACTER SET latin1", "character set"),
        ("MODIFY kafka_value LONGBLOB", "value type"),
    ],
)
def test_a_table_that_was_made_otherwise(under: OutboxUnderTest, change: str, subject: str) -> None:
    dialect = a_dialect(under)
    dialect.create()
    with root(under) as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {dialect.options.table} {change}")
    assert set(faults(dialect)) == {subject}


@pytest.mark.parametrize("kind", ["INT", "CHAR(36)"])
def test_a_table_that_is_taken_in_needs_an_index(under: OutboxUnderTest, kind: str) -> None:
    source = f"source_{uuid4().hex}"
    intake = Intake(table=source, id="no", order="no", topic="orders", key="who", value="what")
    dialect = a_dialect(under, intake=intake)
    dialect.create()
    with root(under) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {source} (no {kind} NOT NULL, who CHAR(9), what TEXT)")
        assert "create one" in faults(dialect)["intake"].message
        cursor.execute(f"ALTER TABLE {source} ADD UNIQUE INDEX `by no` (no)")
        assert "can be taken in" in faults(dialect)["intake"].message
        table = dialect.connect()
        fence = table.enter(0, 1, table.bump(1, "x"))
        cursor.execute(f"INSERT INTO {source} VALUES (2, 'b', 'two'), (1, 'a', 'one')")
        cursor.execute("START TRANSACTION")
        cursor.execute(f"INSERT INTO {source} VALUES (0, 'c', 'not yet')")
        with closing(dialect.intakes()) as intakes:
            assert intakes.take(fence.token, 2**20)
        assert [record.value for record in table.mark(fence, uuid4(), 10)] == ["one", "two"]
        cursor.execute("COMMIT")
        with closing(dialect.intakes()) as intakes:
            assert intakes.take(fence.token, 2**20)
        assert [record.value for record in table.mark(fence, uuid4(), 10)] == ["one", "two", "not yet"]
    table.close()


def test_a_transaction_that_is_forgotten_is_told(
    under: OutboxUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = a_dialect(under)
    dialect.create()
    monkeypatch.setattr(check, "_LONG", 0)
    with root(under) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(f"SELECT * FROM {dialect.options.table} FOR UPDATE")
        assert "open transactions" in faults(dialect)


def test_files_of_defaults_are_read(under: OutboxUnderTest, tmp_path: Path) -> None:
    address = DataSource.parse(under.options["data_source"])
    file = tmp_path / "my.cnf"
    file.write_text(
        f"[client]\nhost={address.host}\nport={address.port}\nuser={address.user}\npassword={address.password}\n"
        f"database={address.database}\n"
    )
    dialect = a_dialect(under, data_source=f"mysql:///?read-default-file={file}&ssl-mode=DISABLED")
    assert dialect.create()[0] == dialect.options.table
    with pytest.raises(pymysql.MySQLError):
        pymysql.connect(host=address.host, port=address.port, user="nobody", password=address.password)


def test_free_connections_are_those_of_the_server_and_of_the_account(under: OutboxUnderTest) -> None:
    options = a_dialect(under).options
    with ExitStack() as stack:
        admin = stack.enter_context(closing(root(under)))
        user = create_user(admin, stack)
        user.grant("SELECT ON *.*")
        dialect = MySqlDialect(signed_in(options, user))
        assert dialect.free_connections() > 3
        admin.cursor().execute(f"ALTER USER {user.name} WITH MAX_USER_CONNECTIONS 3")
        assert dialect.free_connections() == 3
        user.grant("PROCESS ON *.*")
        assert dialect.free_connections() == 3, "though it sees the connections of others"
        stack.enter_context(closing(connection_of(options, user)))
        assert dialect.free_connections() == 2
