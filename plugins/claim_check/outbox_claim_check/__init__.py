"""Large values travel by an object store (driver ``claim-check``): the record has a reference instead.

The transform writes the value under the SHA-256 of its bytes, before the record is published; consumers call
:func:`fetch`, which needs nothing of a harvester.
"""

from __future__ import annotations

from outbox_api import Driver, Transform, hookimpl

from outbox_claim_check.consumer import ClaimError, fetch
from outbox_claim_check.options import ClaimCheckOptions

__all__ = ["ClaimCheckOptions", "ClaimError", "create", "fetch", "outbox_transform"]


def create(options: ClaimCheckOptions) -> Transform:
    """Makes the transform ``claim-check``; does not connect.

    Raises:
        PluginError: The library for such a store is not installed.
    """
    from outbox_claim_check.claims import ClaimCheck  # noqa: PLC0415 - loads a store's library

    return ClaimCheck(options)


@hookimpl
def outbox_transform() -> Driver[Transform]:
    """Offers the claim check."""
    return Driver(ClaimCheckOptions, create)
