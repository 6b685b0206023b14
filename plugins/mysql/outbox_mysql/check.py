"""What ``outbox check`` reports about a MySQL or MariaDB server; ``check_tables`` looks at the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from outbox_api import AccessDenied, DriverError, Finding, Level, Origin
from outbox_api.portable import Session

from outbox_mysql.check_tables import table_findings
from outbox_mysql.idiom import MAY_SEE, age
from outbox_mysql.options import MySqlOptions, transport

_TRIGGERS = (
    "SELECT action_statement FROM information_schema.triggers"
    " WHERE event_object_schema = COALESCE(NULLIF({schema}, ''), DATABASE())"
    " AND event_object_table = {table} AND event_manipulation = 'INSERT' AND action_timing = 'BEFORE'"
)
_RUNS = "SHOW GLOBAL VARIABLES LIKE 'slave_run_triggers_for_rbr'"
_FILL = (
    "SET @outbox_zone = @@session.time_zone, time_zone = '+00:00', NEW.{column} = SYSDATE(6),"
    " time_zone = @outbox_zone"
)
"""Sets a column to the present time in UTC.

Other functions than ``SYSDATE`` return the time of the change that is replicated. It returns local time,
which an hour of each autumn has twice where there is summer time, so it is read in UTC, and not converted.
"""
_IN_UTC = re.compile(r"time_zone\s*=\s*'\+00:00'")

_WITHOUT = "as time of arrival the time of writing is copied, by the clock of the cluster that wrote the row"


def arrival(session: Session, options: MySqlOptions, *, mariadb: bool) -> Iterator[Finding]:
    """Checks that this replica fills the column itself; row replication copies all columns."""
    origin = options.origin
    if origin is None or not origin.arrival:
        return
    if not mariadb:
        seen = f"MySQL's replication copies the column {origin.arrival} and runs no triggers: {_WITHOUT}"
        yield Finding(Level.WARNING, "arrival", seen, "leave arrivalColumn out, and keep clocks together")
        return
    place = session.idiom.place(options.outbox)
    with session.transaction("look at the outbox's triggers"):
        triggers = [str(row[0]) for row in session.fetch(_TRIGGERS, **place)]
        runs = [str(row[1]) for row in session.fetch(_RUNS)]
    filling = [
        text for text in map(str.lower, triggers) if origin.arrival.lower() in text and "sysdate" in text
    ]
    quote, table = session.idiom.quote, session.idiom.quote_table(options.outbox)
    cure = (
        f"CREATE TRIGGER {quote(f'{options.outbox.table}_{origin.arrival}')} BEFORE INSERT ON {table}"
        f" FOR EACH ROW {_FILL.format(column=quote(origin.arrival))}"
    )
    if not filling:
        seen = f"no trigger fills {origin.arrival} by SYSDATE: {_WITHOUT}"
        yield Finding(Level.WARNING, "arrival", seen, cure)
    elif not any(map(_IN_UTC.search, filling)):
        seen = (
            f"the trigger that fills {origin.arrival} reads local time: where there is summer time it is an "
            "hour ahead for an hour each autumn, and takeovers wait"
        )
        yield Finding(Level.WARNING, "arrival", seen, f"replace the trigger: {cure}")
    elif runs != ["ENFORCE"]:
        seen = f"slave_run_triggers_for_rbr is {', '.join(runs)}: {_WITHOUT}"
        cure = "set slave_run_triggers_for_rbr = ENFORCE, as the table has a trigger where it is written, too"
        yield Finding(Level.WARNING, "arrival", seen, cure)
    else:
        yield Finding(Level.OK, "arrival", f"a trigger fills {origin.arrival} on each replica")


_OLDEST: Final = {"MySQL": (8, 0, 20), "MariaDB": (10, 6)}
_VARIABLES: Final = (
    "auto_increment_increment",
    "auto_increment_offset",
    "binlog_format",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
    "innodb_flush_log_at_trx_commit",
    "innodb_read_only",
    "log_bin",
    "max_allowed_packet",
    "read_only",
    "super_read_only",
    "sync_binlog",
    "version",
    "wsrep_on",
)
_MIB: Final = 1 << 20
_SMALL_PACKET: Final = 4 * _MIB
_LONG: Final = 60
"""Seconds after which a transaction is worth a warning."""

_LONGEST = f"SELECT MAX({age('trx_started')}) FROM information_schema.innodb_trx"  # noqa: S608 - of constants


def findings(session: Session, options: MySqlOptions) -> Iterator[Finding]:
    """Checks version, settings, tables and privileges."""
    settings = _settings(session)
    yield _version(settings)
    yield from transport(session, options)
    yield from _durability(settings)
    yield from _writable(settings)
    yield from _cluster(settings, options.origin)
    yield from _ids(settings, options.origin)
    yield from arrival(session, options, mariadb="MariaDB" in settings["version"])
    yield _packet(settings)
    yield from _proxy(session)
    yield from _transactions(session)
    yield from table_findings(session, options)


def free_connections(session: Session) -> int:
    """Counts what is left of the server's limit, and of the account's if there is one."""
    limits = "SELECT @@max_connections, @@max_user_connections, SUBSTRING_INDEX(USER(), '@', 1)"
    [(server, account, user)] = session.query("ask for limits", limits)
    [(_, connected)] = session.query("count connections", "SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    left = int(server) - int(connected)
    if int(account):
        # Its own connections need no right to be seen; with the right PROCESS it sees those of others, too.
        rows = session.query("count own connections", "SHOW PROCESSLIST")
        left = min(left, int(account) - sum(row[1] == user for row in rows))
    return 1 + max(0, left)


def _settings(session: Session) -> Mapping[str, str]:
    listed = ", ".join(f"'{name}'" for name in _VARIABLES)
    rows = session.query("read the settings", f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
    return {str(name).lower(): str(value) for name, value in rows}


def _version(settings: Mapping[str, str]) -> Finding:
    text = settings["version"]
    server = "MariaDB" if "MariaDB" in text else "MySQL"
    number = tuple(map(int, re.findall(r"\d+", text)[:3]))
    if number < _OLDEST[server]:
        oldest = ".".join(map(str, _OLDEST[server]))
        return Finding(
            Level.ERROR, "version", f"the server is {server} {text}", f"use {server} {oldest} or newer"
        )
    return Finding(Level.OK, "version", f"{server} {text}")


def _durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    logs = settings.get("log_bin") == "ON"
    loose = []
    # MariaDB's 3 waits for the disk twice.
    if settings["innodb_flush_log_at_trx_commit"] not in ("1", "3"):
        loose.append("innodb_flush_log_at_trx_commit")
    if logs and settings.get("sync_binlog") != "1":
        loose.append("sync_binlog")
    if loose:
        seen = " and ".join(f"{name} is {settings.get(name)}" for name in loose)
        yield Finding(
            Level.WARNING,
            "durability",
            f"{seen}: a crash may take back committed purges, whose records are then published again",
            f"set {' and '.join(f'{name} = 1' for name in loose)} on the server",
        )
    else:
        yield Finding(Level.OK, "durability", "commits wait for the disk")
    if logs and settings.get("binlog_format") == "STATEMENT":
        yield Finding(
            Level.ERROR,
            "binary log",
            "binlog_format is STATEMENT, which does not go with a harvester's isolation, READ COMMITTED",
            "set binlog_format = ROW or MIXED on the server",
        )


def _writable(settings: Mapping[str, str]) -> Iterator[Finding]:
    names = ("super_read_only", "read_only", "innodb_read_only")
    if on := [name for name in names if settings.get(name, "OFF") not in ("OFF", "0")]:
        cure = "let dataSource lead to the server that is written, the primary"
        yield Finding(Level.ERROR, "read-only server", f"{on[0]} is {settings[on[0]]}", cure)


def _ids(settings: Mapping[str, str], origin: Origin | None) -> Iterator[Finding]:
    """Checks that clusters which write copies of one table give out ids of their own."""
    if origin is None:
        return
    step, offset = (int(settings[f"auto_increment_{name}"]) for name in ("increment", "offset"))
    most = max(origin.known)
    if step < most or offset != origin.own:
        yield Finding(
            Level.WARNING,
            "ids",
            f"auto_increment_increment is {step} and auto_increment_offset {offset}: where {most} clusters "
            "write copies of one table, two rows may get the same id",
            f"set auto_increment_increment = {most}, or more, in all clusters, and auto_increment_offset = "
            f"{origin.own} in this one",
        )
    else:
        yield Finding(Level.OK, "ids", f"{offset}, {offset + step}, …: no other cluster gives out the same")


def _cluster(settings: Mapping[str, str], origin: Origin | None) -> Iterator[Finding]:
    group = settings.get("group_replication_group_name", "")
    galera = settings.get("wsrep_on") == "ON"
    if galera or (group and settings.get("group_replication_single_primary_mode") == "OFF"):
        yield Finding(
            Level.WARNING,
            "cluster",
            f"{'Galera' if galera else 'group replication'} lets several servers be written: locks, and with "
            "them the fence, hold within each server only",
            "let all harvesters, and the applications that share keys, write to one and the same server",
        )
    elif int(settings["auto_increment_increment"]) > 1 and origin is None:
        yield Finding(
            Level.WARNING,
            "ids",
            f"auto_increment_increment is {settings['auto_increment_increment']}: where several servers are "
            "written, ids do not tell the order of records",
            "let the applications that share keys write to one and the same server",
        )


def _packet(settings: Mapping[str, str]) -> Finding:
    size = int(settings["max_allowed_packet"])
    message = (
        f"max_allowed_packet is {size / _MIB:.3g} MiB; a record must be smaller, one of bytes half as large"
    )
    if size < _SMALL_PACKET:
        return Finding(Level.WARNING, "packet size", message, "set max_allowed_packet = 16M or more")
    return Finding(Level.OK, "packet size", message)


def _proxy(session: Session) -> Iterator[Finding]:
    [(number,)] = session.query("ask for the session's number", "SELECT CONNECTION_ID()")
    if number != session.connection.thread_id():
        yield Finding(
            Level.WARNING,
            "proxy",
            "a proxy answers in the server's place, and may hand statements of one session to several",
            "connect to the server itself, or switch multiplexing off for this account",
        )


def _transactions(session: Session) -> Iterator[Finding]:
    subject = "open transactions"
    try:
        [(seconds,)] = session.query("look at open transactions", _LONGEST)
    except AccessDenied:
        yield Finding(
            Level.WARNING,
            subject,
            "cannot see other users' transactions",
            f"GRANT {MAY_SEE} ON *.* TO the account",
        )
        return
    except DriverError as error:
        yield Finding(Level.WARNING, subject, f"cannot see them: {error}", "see the message")
        return
    if int(seconds or 0) >= _LONG:
        yield Finding(
            Level.WARNING,
            subject,
            f"a transaction has been open for {seconds} s: what it stashes comes late, and until it ends "
            "marks pass all rows that were purged meanwhile",
            "end it; SELECT * FROM information_schema.innodb_trx tells whose it is",
        )
    else:
        yield Finding(Level.OK, subject, "none is old")
