"""What SQL Server's error numbers mean."""

from __future__ import annotations

from typing import Any

from outbox_sdk.portable import ErrorKind
from outbox_sdk.tls import verification_error

# Deadlocks and lock time-outs, shutdowns, connections, memory and space, databases that are starting, moving
# or read-only for now, and what Azure asks to be tried again.
_TRANSIENT = (
    64, 121, 233, 596, 601, 617, 669, 701, 802, 921, 922, 927, 976, 978, 979, 981, 982, 983, 1105, 1204,
    1205, 1222, 3906, 3935, 3960, 3966, 4221, 6005, 8645, 8651, 9001, 9002, 10053, 10054, 10060, 10061,
    10922, 10928, 10929, 10936, 17142, 17143, 18401, 35202, 40143, 40197, 40501, 40540, 40613, 41305,
    41325, 41839, 49918, 49919, 49920,
)  # fmt: skip
_ACCESS_DENIED = (
    229, 230, 262, 297, 300, 916, 4060, 4064, 15247, 18452, 18456, 18470, 18486, 18487, 18488,
)  # fmt: skip

ERROR_KINDS = {
    **dict.fromkeys(_TRANSIENT, ErrorKind.TRANSIENT),
    **dict.fromkeys(_ACCESS_DENIED, ErrorKind.ACCESS_DENIED),
    208: ErrorKind.NO_TABLE,
    2601: ErrorKind.EXISTS,
    2627: ErrorKind.EXISTS,
    2714: ErrorKind.EXISTS,
}
"""By the number; whatever is not listed lasts."""

CURES = {
    916: "make the login a user of the database",
    1222: "somebody's forgotten transaction holds the row",
    3906: "connect to the primary, through a listener that moves with it",
    4060: "correct the database in dataSource, or let this user in",
    18456: "correct Uid in dataSource, or the password",
    18487: "change the user's password",
    18488: "change the user's password",
}
"""What a user can do, by the number."""


def number(error: Exception) -> int:
    """Returns the server's number of an error; 0 for one of the driver or the network."""
    found: Any = getattr(error, "number", 0)
    return int(found or 0)


def error_kind(error: Exception) -> ErrorKind:
    """Says what an error of the driver means."""
    import pytds  # noqa: PLC0415 - only who connects needs it

    found = number(error)
    if found:
        return ERROR_KINDS.get(found, ErrorKind.PERMANENT)
    if isinstance(error.__cause__, FileNotFoundError) or verification_error(error):
        return ErrorKind.PERMANENT
    # Without a number it is about the connection, which is lost or closed.
    return ErrorKind.TRANSIENT if isinstance(error, pytds.InterfaceError) else ErrorKind.PERMANENT
