"""The errors of outbox: a small tree, picklable, each raised from its cause."""

from __future__ import annotations


class OutboxError(Exception):
    """Anything that outbox itself reports; the message says what is wrong and how to cure it.

    Attributes:
        code: Which section of ``docs/errors.md`` explains it: ``outbox explain CODE``. A class without one of
            its own has that of its base. Codes stay the same in later versions.
    """

    code = "OUTBOX-FAILED"


class ConfigError(OutboxError):
    """The configuration cannot be used as it is written."""

    code = "OUTBOX-CONFIG"


class PluginError(ConfigError):
    """A driver or a command is not installed, ambiguous, or not a valid plugin."""

    code = "OUTBOX-PLUGIN"


class DriverError(OutboxError):
    """A database, broker or coordinator refused or could not be reached.

    Attributes:
        retryable: Whether the same call may succeed later without anybody changing anything. If not, and if
            the class has no code of its own, the code is ``OUTBOX-REFUSED``.
    """

    code = "OUTBOX-UNREACHABLE"

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
        if not retryable and self.code == DriverError.code:
            self.code = "OUTBOX-REFUSED"

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps ``retryable`` when the error crosses a process boundary."""
        return (_driver_error, (type(self), str(self), self.retryable))


class RolledBack(DriverError):  # noqa: N818 - reads as what happened, like its siblings in the tree
    """A database itself has ended a transaction, and said so: nothing of it was done, now or later.

    Such as a lock that was not to be had in time. Of a lost connection that is not known.
    """

    code = "OUTBOX-ROLLED-BACK"


class ServerFull(DriverError):  # noqa: N818 - as above
    """A server has no connection left, or this process waits since it had none."""

    code = "OUTBOX-FULL"

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, retryable=retryable)


class AccessDenied(DriverError):  # noqa: N818 - reads as what happened, like its siblings in the tree
    """A database, broker or coordinator knows who we are, or not, and does not let us.

    ``lacks`` says which rights a database's user lacks, without the statements that grant them; empty if
    that is not the reason, or not known.
    """

    code = "OUTBOX-DENIED"

    def __init__(self, message: str, *, retryable: bool = False, lacks: str = "") -> None:
        super().__init__(message, retryable=retryable)
        self.lacks = lacks


class CheckpointLost(DriverError):  # noqa: N818 - as above
    """A lane has published in transactions, and its checkpoint is not there, or cannot be read."""

    code = "OUTBOX-CHECKPOINT"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)


class RecordError(OutboxError, ValueError):
    """A record cannot be written into the outbox, or noted in an inbox; nothing was sent to the database."""

    code = "OUTBOX-RECORD"


class TransformError(OutboxError):
    """A transform can make nothing of a record; the message contains nothing of its value."""

    code = "OUTBOX-TRANSFORM"
    retryable = False
    """Whether it may be transformed later without anybody changing anything."""


class TransformUnavailable(TransformError):  # noqa: N818 - reads as what happened, as above
    """What a transform needs to make something of a record is away; it may be tried again."""

    retryable = True


class LeadershipLost(OutboxError):  # noqa: N818 - the glossary's word: an event that a lane obeys, not a defect
    """The fence no longer carries the caller's token: somebody else leads, stop at once."""

    code = "OUTBOX-FENCED"


def _driver_error(kind: type[DriverError], message: str, retryable: bool) -> DriverError:
    return kind(message, retryable=retryable)
