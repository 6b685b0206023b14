"""The whole suite for dialects."""

from __future__ import annotations

from outbox_testkit.conformance.batches import BatchConformance
from outbox_testkit.conformance.bounds import BoundConformance, ExclusionConformance
from outbox_testkit.conformance.clusters import ClusterConformance
from outbox_testkit.conformance.coalescing import CoalescingConformance
from outbox_testkit.conformance.concurrency import ConcurrencyConformance
from outbox_testkit.conformance.copies import CopyConformance
from outbox_testkit.conformance.cost import CostConformance
from outbox_testkit.conformance.dead_letters import LetterConformance
from outbox_testkit.conformance.fencing import FenceConformance
from outbox_testkit.conformance.history import HistoryConformance
from outbox_testkit.conformance.intake import IntakeConformance
from outbox_testkit.conformance.intake_faults import IntakeFaultConformance
from outbox_testkit.conformance.journal import JournalConformance
from outbox_testkit.conformance.keeping import KeepingConformance
from outbox_testkit.conformance.lease import LeaseConformance
from outbox_testkit.conformance.marking import MarkConformance
from outbox_testkit.conformance.members import MemberConformance
from outbox_testkit.conformance.oddities import OddRowConformance
from outbox_testkit.conformance.origins import OriginConformance, TakeoverConformance
from outbox_testkit.conformance.outboxes import OutboxesConformance
from outbox_testkit.conformance.parking import ParkConformance
from outbox_testkit.conformance.partitions import PartitionConformance
from outbox_testkit.conformance.pausing import PauseConformance
from outbox_testkit.conformance.releasing import ReleaseConformance
from outbox_testkit.conformance.replaying import ReplayConformance
from outbox_testkit.conformance.retention import RetentionConformance
from outbox_testkit.conformance.schemas import SchemaConformance
from outbox_testkit.conformance.simulation import SimulationConformance
from outbox_testkit.conformance.stashing import StashConformance
from outbox_testkit.conformance.status import StatusConformance, TableConformance
from outbox_testkit.conformance.watching import WatchConformance

THEMES = {
    "stash": StashConformance,
    "mark": MarkConformance,
    "purge and reset": ReleaseConformance,
    "fence": FenceConformance,
    "batches": BatchConformance,
    "bounds": BoundConformance,
    "exclusion": ExclusionConformance,
    "odd rows": OddRowConformance,
    "parking": ParkConformance,
    "dead letters": LetterConformance,
    "keeping": KeepingConformance,
    "replays": ReplayConformance,
    "retention": RetentionConformance,
    "partitions": PartitionConformance,
    "coalescing": CoalescingConformance,
    "intake": IntakeConformance,
    "intake while something fails": IntakeFaultConformance,
    "lease": LeaseConformance,
    "members": MemberConformance,
    "history": HistoryConformance,
    "outboxes": OutboxesConformance,
    "clusters": ClusterConformance,
    "origins": OriginConformance,
    "takeovers": TakeoverConformance,
    "pauses": PauseConformance,
    "copies": CopyConformance,
    "status": StatusConformance,
    "tables": TableConformance,
    "journal": JournalConformance,
    "watching": WatchConformance,
    "versions": SchemaConformance,
    "concurrency": ConcurrencyConformance,
    "cost": CostConformance,
    "simulation": SimulationConformance,
}
"""The themes of the suite, in order."""


class DailyConformance(MarkConformance, ReleaseConformance, CoalescingConformance):
    """What an outbox in partitions could do otherwise; its fixture ``outbox`` has the option ``by_day``."""


class DialectConformance(
    CostConformance,  # the last to run, as the first of the bases: it takes minutes
    StashConformance,
    MarkConformance,
    ReleaseConformance,
    FenceConformance,
    BatchConformance,
    BoundConformance,
    ExclusionConformance,
    OddRowConformance,
    ParkConformance,
    LetterConformance,
    ReplayConformance,
    KeepingConformance,
    RetentionConformance,
    PartitionConformance,
    CoalescingConformance,
    IntakeConformance,
    IntakeFaultConformance,
    LeaseConformance,
    MemberConformance,
    HistoryConformance,
    OutboxesConformance,
    ClusterConformance,
    OriginConformance,
    TakeoverConformance,
    PauseConformance,
    CopyConformance,
    StatusConformance,
    TableConformance,
    JournalConformance,
    WatchConformance,
    SchemaConformance,
    ConcurrencyConformance,
    SimulationConformance,
):
    """What every dialect must do; a plugin's subclass provides the fixture ``outbox``."""
