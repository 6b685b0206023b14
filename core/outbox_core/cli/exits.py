"""The exit codes of ``outbox``, and the errors that lead to them."""

from enum import IntEnum

from outbox_sdk.errors import AccessDenied, ConfigError, DriverError


class ExitCode(IntEnum):
    """Exit codes; those from 64 on have the meanings of ``sysexits.h``."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    NO_PERMISSION = 77
    CONFIG = 78


MEANINGS = {
    ExitCode.OK: "done; a harvester was told to stop and has handed over",
    ExitCode.FAILED: "failed, or something must be cured: no table, or what 'check', 'health', 'audit' found",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.UNAVAILABLE: "a database, broker or coordinator cannot be reached; later it may work",
    ExitCode.INTERNAL: "a defect of outbox or of a plugin",
    ExitCode.NO_PERMISSION: "a database or broker refuses the user, as far as its driver tells",
    ExitCode.CONFIG: "the configuration cannot be used, or a plugin is missing",
}
"""The meaning of each code, for ``--help`` and the documentation; a hard stop exits with 130 or 143."""


def exit_code(error: BaseException) -> ExitCode:
    """Returns the code with which ``error`` ends the program."""
    if isinstance(error, ConfigError):
        return ExitCode.CONFIG
    if isinstance(error, AccessDenied):
        return ExitCode.NO_PERMISSION
    if isinstance(error, DriverError) and error.retryable:
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED
