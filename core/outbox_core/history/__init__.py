"""What happened to an outbox in the last hour, found by comparing successive looks: no I/O, no clock."""

from outbox_core.history.happenings import Happening, HappeningCode
from outbox_core.history.history import History
from outbox_core.history.points import Point

__all__ = ["Happening", "HappeningCode", "History", "Point"]
