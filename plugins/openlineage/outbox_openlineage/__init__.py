"""Tells data catalogs of an outbox (listener ``openlineage``): its table, its topics, and each leadership."""

from __future__ import annotations

from outbox_api import Driver, Listener, hookimpl

from outbox_openlineage.options import OpenLineageOptions

__all__ = ["OpenLineageOptions", "create", "outbox_listener"]


def create(options: OpenLineageOptions) -> Listener:
    """Makes the listener ``openlineage``; does not connect."""
    from outbox_openlineage.lineage import Lineage  # noqa: PLC0415 - loads the client

    return Lineage(options)


@hookimpl
def outbox_listener() -> Driver[Listener]:
    """Offers the listener."""
    return Driver(OpenLineageOptions, create)
