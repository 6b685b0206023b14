"""All methods, and this project's deliveries, by name."""

from __future__ import annotations

from bench.methods import dirty, heads, marking, offsets, tailing, windows
from bench.methods.method import Method

METHODS: dict[str, Method] = {
    each.name: each
    for each in (
        *tailing.METHODS,
        *offsets.METHODS,
        *dirty.METHODS,
        *heads.METHODS,
        *windows.METHODS,
        *marking.METHODS,
    )
}
DELIVERIES = {f"outbox {delivery}": delivery for delivery in ("at-least-once", "exactly-once")}
