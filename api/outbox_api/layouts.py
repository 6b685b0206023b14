"""Tables of other tools: what their columns mean, by the tools' names. Data only; see ``Intake``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LAYOUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Debezium's outbox event router, by its defaults.
    "debezium": {
        "id": "id",
        "topic": "outbox.event.{aggregatetype}",
        "key": "aggregateid",
        "value": "payload",
        "headers": {"id": "id"},
    },
}
"""Layouts that are known by name."""
