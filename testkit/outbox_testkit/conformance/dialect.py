"""The whole suite for dialects."""

from __future__ import annotations

from outbox_testkit.conformance.batches import BatchConformance
from outbox_testkit.conformance.fencing import FenceConformance
from outbox_testkit.conformance.marking import MarkConformance
from outbox_testkit.conformance.parking import LetterConformance, ParkConformance
from outbox_testkit.conformance.releasing import ReleaseConformance
from outbox_testkit.conformance.stashing import StashConformance
from outbox_testkit.conformance.status import StatusConformance, TableConformance

THEMES = {
    "stash": StashConformance,
    "mark": MarkConformance,
    "purge and reset": ReleaseConformance,
    "fence": FenceConformance,
    "batches": BatchConformance,
    "parking": ParkConformance,
    "dead letters": LetterConformance,
    "status": StatusConformance,
    "tables": TableConformance,
}
"""What the suite is about, in this order."""


class DialectConformance(
    StashConformance,
    MarkConformance,
    ReleaseConformance,
    FenceConformance,
    BatchConformance,
    ParkConformance,
    LetterConformance,
    StatusConformance,
    TableConformance,
):
    """What every dialect must do; a plugin's subclass gives the fixture ``outbox`` and nothing more."""
