"""The exit codes of ``outbox``, and which error leads to which."""

from enum import IntEnum

from outbox_sdk.errors import AccessDenied, ConfigError, DriverError


class ExitCode(IntEnum):
    """Exit codes; those above 64 are the ones that ``sysexits.h`` gives these meanings."""

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
"""What each code means, for ``--help`` and the documentation; 130 and 143 are those of a hard stop."""


def exit_code(error: BaseException) -> ExitCode:
    """Returns the code with which ``error`` ends the program."""
    if isinstance(error, ConfigError):
        return ExitCode.CONFIG
    if isinstance(error, AccessDenied):
        return ExitCode.NO_PERMISSION
    if isinstance(error, DriverError) and error.retryable:
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED
