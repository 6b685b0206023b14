"""Raises the fence in the name of an operator."""

import getpass
import socket
from collections.abc import Sequence

from outbox_sdk.fence import LaneStatus

from outbox_core.config import HarvestSettings


def lane_count(held: Sequence[LaneStatus], settings: HarvestSettings) -> int:
    """Returns the present number of lanes; before the first leader, that of the settings."""
    return held[0].fence.lanes if held else settings.limits.send_concurrency


def operator() -> str:
    """Returns the holder that the fence names once an operator has raised it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = "unknown"
    return f"operator {user} at {socket.gethostname()}"
