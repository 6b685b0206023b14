"""Servers that replicate a whole server, and can take its place."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from outbox_servers.services import MariaDbServer, MySqlServer, PostgresServer
from outbox_servers.services.postgres_binaries import find_binaries, readable_binaries
from psycopg.conninfo import make_conninfo

from .harvesters import until

SECONDS = 60.0
"""How long a copy, or a wait for replication, may take."""
MARIADB: Mapping[str, str | int] = {"log-bin": "binlog", "log-slave-updates": "ON", "server-id": 1}
"""Settings of a MariaDB server that is to have a standby, which replays everything from the beginning."""
POSTGRES: Mapping[str, str | int] = {"track_commit_timestamp": "on"}
"""Settings of a PostgreSQL server, and of its standbys, that is to tell the order of commits."""
_DURABLE = {"innodb_flush_log_at_trx_commit": 1, "sync_binlog": 1}
_NUMBERS = itertools.count(2)


def ask(server: PostgresServer | MariaDbServer | MySqlServer, statement: str) -> list[Any]:
    """Executes a statement as the superuser, in autocommit mode and allowed to write; returns its rows."""
    if isinstance(server, PostgresServer):
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    with server.connect() as root, root.cursor() as rows:
        rows.execute(statement)
        return list(rows.fetchall())


def postgres_standby(primary: PostgresServer, moved: Mapping[Path, Path] | None = None) -> PostgresServer:
    """Copies a running server by ``pg_basebackup``, and starts the copy as its streaming replica.

    Args:
        primary: The server.
        moved: Where the copy has its table spaces.
    """
    standby = PostgresServer(settings=POSTGRES)
    data = standby.folder / "data"
    data.mkdir(mode=0o700)
    shutil.copy(primary.folder / "password", standby.folder)
    binaries, account = find_binaries(), standby._account
    if account:
        binaries = readable_binaries(binaries, account)
        standby.folder.chmod(0o711)
        os.chown(data, *account)
    command = [str(binaries / "pg_basebackup"), "-D", str(data), "-d", primary.dsn, "-R", "--no-sync"]
    command += [
        "--checkpoint=fast",
        *(f"--tablespace-mapping={old}={new}" for old, new in (moved or {}).items()),
    ]
    ids = {"user": account[0], "group": account[1], "extra_groups": []} if account else {}
    subprocess.run(command, check=True, timeout=SECONDS, cwd=standby.folder, **ids)  # type: ignore[call-overload]
    standby.start()
    until(lambda: ask(primary, "SELECT 1 FROM pg_stat_replication"), "the standby receives", SECONDS)
    return standby


def stop_receiving(standby: PostgresServer) -> None:
    """Makes a standby lag from now on. (A pause of the replay alone would end with the promotion.)"""
    ask(standby, "ALTER SYSTEM SET primary_conninfo = ''")
    ask(standby, "SELECT pg_reload_conf()")
    until(lambda: not ask(standby, "SELECT 1 FROM pg_stat_wal_receiver"), "the standby lags", SECONDS)


def wait_for_standby(primary: PostgresServer, standby: PostgresServer) -> None:
    """Waits until a standby has what its primary has now."""
    (place,) = ask(primary, "SELECT pg_current_wal_lsn()")[0]
    replayed = f"SELECT pg_last_wal_replay_lsn() >= '{place}'"
    until(lambda: ask(standby, replayed)[0][0], "the standby has everything", SECONDS)


def promote(standby: PostgresServer) -> None:
    """Makes a standby a primary."""
    assert ask(standby, "SELECT pg_promote(true, 60)")[0][0]


def mariadb_standby(primary: MariaDbServer) -> MariaDbServer:
    """Starts a replica that replays everything, also accounts. The primary needs the settings ``MARIADB``."""
    standby = MariaDbServer(settings={**MARIADB, "server-id": next(_NUMBERS)})
    shutil.copy(primary.folder / "password", standby.folder)
    standby.start()
    password = (primary.folder / "password").read_text()
    ask(
        standby,
        f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_USER = 'root', "
        f"MASTER_PASSWORD = '{password}', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos",
    )
    for name in _DURABLE:
        ask(standby, f"SET GLOBAL {name} = 0")  # it replays everything, and can do so again
    ask(standby, "START SLAVE")
    wait_for_mariadb(primary, standby)
    for name, value in _DURABLE.items():
        ask(standby, f"SET GLOBAL {name} = {value}")
    return standby


def wait_for_mariadb(primary: MariaDbServer, standby: MariaDbServer) -> None:
    """Waits until a standby has what its primary has now."""
    (place,) = ask(primary, "SELECT @@gtid_binlog_pos")[0]
    assert ask(standby, f"SELECT MASTER_GTID_WAIT('{place}', {SECONDS:.0f})")[0][0] == 0


def promote_mariadb(standby: MariaDbServer) -> None:
    """Makes a standby a primary."""
    ask(standby, "STOP SLAVE")
    ask(standby, "RESET SLAVE ALL")


def named(dsn: str, port: int) -> str:
    """Returns the connection string of the server that has a name: the port of a proxy."""
    return make_conninfo(dsn, port=port)
