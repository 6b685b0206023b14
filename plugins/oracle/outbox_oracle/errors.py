"""What Oracle's error numbers, and the driver's own, mean."""

from __future__ import annotations

from outbox_sdk.portable import ErrorKind
from outbox_sdk.tls import WRONG_HOST, certificate_cure, cure_of, verification_error

# Sessions and instances that come and go, listeners, locks, space, and standbys that may be promoted.
_TRANSIENT_ORA = (
    18, 20, 28, 54, 60, 257, 1012, 1013, 1033, 1034, 1041, 1089, 1090, 1092, 1109, 1555, 1652, 1653,
    1654, 1658, 1691, 2391, 2396, 3113, 3114, 3135, 4021, 8103, 8177, 12152, 12153, 12170, 12505, 12514,
    12516, 12518, 12519, 12520, 12528, 12537, 12541, 12543, 12545, 12547, 12560, 12571, 16000, 16456,
    25401, 25402, 25403, 25405, 25408, 25409, 30006, 30036, 64307,
)  # fmt: skip
_TRANSIENT_DPY = (1001, 4005, 4011, 4024, 6000, 6001, 6003, 6005)
_ACCESS_DENIED = (
    "ORA-00990", "ORA-01004", "ORA-01005", "ORA-01017", "ORA-01031", "ORA-01045", "ORA-01950", "ORA-28000",
    "ORA-28001", "ORA-41900", "DPY-4001",
)  # fmt: skip

ERROR_KINDS = {
    **{f"ORA-{number:05}": ErrorKind.TRANSIENT for number in _TRANSIENT_ORA},
    **{f"DPY-{number}": ErrorKind.TRANSIENT for number in _TRANSIENT_DPY},
    **dict.fromkeys(_ACCESS_DENIED, ErrorKind.ACCESS_DENIED),
    "ORA-00942": ErrorKind.NO_TABLE,
    "ORA-04043": ErrorKind.NO_TABLE,
    "ORA-00001": ErrorKind.EXISTS,
    "ORA-00955": ErrorKind.EXISTS,
}
"""By the full code; whatever is not listed lasts."""

CURES = {
    "DPY-4000": "correct the TNS alias in dataSource, or set configDir to the folder of tnsnames.ora",
    "DPY-4001": "put user and password into dataSource, or set them beside it",
    "DPY-6001": "see that the service in dataSource is right, and open",
    "ORA-00942": "see that the table is there and that this user may read it",
    "ORA-01031": "grant the user what the README lists",
    "ORA-12514": "see that the service in dataSource is right, and open",
    "ORA-12541": "see that the listener runs, and at this port",
    "ORA-16000": "connect to the primary, through a service that moves with it",
    "ORA-28000": "unlock the account",
    "ORA-28001": "change the user's password",
    "ORA-30006": "somebody's forgotten transaction holds the fence's row",
}
"""What a user can do, by the full code."""


WRONG_NAME = "DPY-6006"
"""The driver's code, within the text of another error, for a certificate that is for another host name."""


def cure(error: Exception) -> str:
    """Returns what a user can do about an error; empty if there is no advice."""
    if WRONG_NAME in str(error):
        return certificate_cure(WRONG_HOST, "walletLocation")
    return cure_of(error, "walletLocation") or CURES.get(full_code(error), "")


def full_code(error: Exception) -> str:
    """Returns ``ORA-…`` or ``DPY-…``; empty where the driver did not say."""
    return str(getattr(error.args[0] if error.args else None, "full_code", None) or "")


def error_kind(error: Exception) -> ErrorKind:
    """Says what an error of the driver means."""
    if WRONG_NAME in str(error) or verification_error(error):
        return ErrorKind.PERMANENT
    detail = error.args[0] if error.args else None
    # The network is gone, or its name: the driver lets some errors of the socket pass as they are, and
    # the dialect wraps them.
    if isinstance(error.__cause__, OSError) or getattr(detail, "is_session_dead", False):
        return ErrorKind.TRANSIENT
    found = ERROR_KINDS.get(full_code(error))
    if found is None and getattr(detail, "isrecoverable", False):
        return ErrorKind.TRANSIENT
    return found or ErrorKind.PERMANENT
