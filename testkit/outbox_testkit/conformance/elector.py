"""What every elector must do, on its real service."""

from __future__ import annotations

from outbox_testkit.conformance.failover import FailoverConformance
from outbox_testkit.conformance.handover import HandOverConformance

THEMES = {"hand-over": HandOverConformance, "failover": FailoverConformance}
"""The themes of the suite, in order."""


class ElectorConformance(HandOverConformance, FailoverConformance):
    """The suite. The plugin's subclass provides the fixture ``elector``, an :class:`ElectorUnderTest`.

    A test is skipped only if the elector under test does not declare what it needs.
    """
