"""What MySQL's and MariaDB's error numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outbox_api.portable import ErrorKind
from outbox_api.support.tls import cure_of, verification_error

_TRANSIENT: Final = frozenset(
    {
        # From the client: no connection, or a lost one; 0 is PyMySQL's number for a closed one.
        0, 2002, 2003, 2006, 2013, 2055,
        # The server has no room or time: connections, memory, disk, locks.
        1021, 1026, 1030, 1037, 1038, 1041, 1114, 1135, 1206, 1637, 3572,
        # The server shuts down, starts, or has ended the session.
        1043, 1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3032, 3168, 3169, 4031,
        # A proxy, ProxySQL, finds no server behind it.
        9001, 9002,
        # A statement ran for too long, or was interrupted; or the server ended what took too much memory.
        1028, 1317, 1689, 1969, 3024, 3058, 4081, 4082,
        # The server is read-only, as after a failover, or is not the cluster's primary.
        1047, 1290, 1792, 1836,
        # Another member of the cluster has changed the same rows first.
        1020, 1180, 3100, 3101,
        # Somebody alters the table at the same time.
        1412, 1615,
        # An index that a statement names is gone: the next connection looks for it anew.
        1176,
    }
)  # fmt: skip
_STATES: Final = frozenset({"08", "25", "40", "53", "57", "70"})
"""SQLSTATE classes of numbers that nobody knows yet: connection, state of the transaction, rollback,
resources, operator, interruption.
"""
_LASTING: Final = frozenset({1153, 1568})  # a packet that is too large; SET TRANSACTION within one
_ACCESS_DENIED: Final = frozenset(
    {1044, 1045, 1095, 1130, 1131, 1132, 1142, 1143, 1227, 1251, 1370, 1396, 1449, 1524, 1698, 1820, 1862,
     1873, 2049, 2054, 2058, 2059, 2061, 3118, 3159, 3955, 4151}
)  # fmt: skip
_KINDS: Final[Mapping[int | None, ErrorKind]] = {
    **dict.fromkeys(_TRANSIENT, ErrorKind.TRANSIENT),
    **dict.fromkeys(_ACCESS_DENIED, ErrorKind.ACCESS_DENIED),
    **dict.fromkeys((1040, 1203, 1226), ErrorKind.FULL),
    **dict.fromkeys((1050, 1062, 1517), ErrorKind.EXISTS),  # the last two: a row, a partition
    **dict.fromkeys((1146, 1507, 1735), ErrorKind.NO_TABLE),  # the others: no such partition
    1213: ErrorKind.ROLLED_BACK,  # a deadlock
    1205: ErrorKind.LOCK_TIMEOUT,
}

CURES: Final = {
    1021: "the server's disk is full",
    1044: "let somebody GRANT this account access to the database",
    1045: "correct the user in dataSource, or the password",
    1046: "name the database in dataSource: mysql://user@host/database",
    1049: "correct the database's name in dataSource, or create it: CREATE DATABASE …",
    1114: "the server's disk, or the table's space, is full",
    1129: "let somebody run FLUSH HOSTS, or mariadb-admin flush-hosts",
    1130: "let somebody create the account for this host: CREATE USER user@host",
    1142: "let somebody GRANT this account what is missing; the README lists it",
    1143: "let somebody GRANT this account what is missing; the README lists it",
    1153: "raise the server's max_allowed_packet",
    1193: "use MySQL 8.0.20, MariaDB 10.6, or newer",
    1205: "another transaction holds the rows for too long; see information_schema.innodb_trx",
    1290: "the server is read-only; see that dataSource leads to the one that is not",
    1665: "set binlog_format = ROW or MIXED on the server",
    1698: "the account signs in as an operating system's user only; give it a password",
    1820: "the account's password has expired; set a new one",
    1836: "the server is read-only; see that dataSource leads to the one that is not",
    1862: "the account's password has expired; set a new one",
    2059: "the account's way of signing in is not one that PyMySQL knows",
    2061: "the account's way of signing in is not one that PyMySQL knows",
    3118: "the account is locked: ALTER USER … ACCOUNT UNLOCK",
    3159: "the server wants TLS: add ssl-mode=REQUIRED to dataSource",
    4151: "the account is locked: ALTER USER … ACCOUNT UNLOCK",
}


def error_kind(error: Exception) -> ErrorKind:
    """Returns what an error of the driver means, by its number; of an unknown one, by its SQLSTATE."""
    if verification_error(error):
        return ErrorKind.PERMANENT
    number = _number(error)
    if known := _KINDS.get(number):
        return known
    # An error without a number is PyMySQL's own: replies out of order, or a closed connection.
    state = str(getattr(error, "sqlstate", None) or "")  # not before PyMySQL 1.2
    passes = number is None or (state[:2] in _STATES and number not in _LASTING)
    return ErrorKind.TRANSIENT if passes else ErrorKind.PERMANENT


def cure(error: Exception) -> str:
    """Returns what a user can do about an error; empty if there is no advice."""
    return cure_of(error, "ssl-ca") or CURES.get(_number(error) or 0, "")


def _number(error: Exception) -> int | None:
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None
