"""What applications and plugins import: records, the stasher, the five seams and their errors."""

from outbox_sdk.affinity import MAX_CLUSTER, Affinity, ColumnIs, Origin, Takeover
from outbox_sdk.dialect import Capability, Dialect, Insert
from outbox_sdk.elector import Candidate, Elector
from outbox_sdk.engine import Address, Engine, EngineLost, EngineOptions, Needs, Task, WorkerLost, Workers
from outbox_sdk.errors import (
    AccessDenied,
    ConfigError,
    DriverError,
    LeadershipLost,
    OutboxError,
    PluginError,
    RecordError,
    RolledBack,
    ServerFull,
)
from outbox_sdk.fence import Fence, LaneStatus, TransactionalLane
from outbox_sdk.file_text import FileText, present_text
from outbox_sdk.finding import Finding, Level
from outbox_sdk.hooks import Driver, Duration, Unit, hookimpl
from outbox_sdk.intake import Intake, Taken
from outbox_sdk.journal import Action, Entry, Journal
from outbox_sdk.lease import Lease, Members
from outbox_sdk.outbox_table import UNBOUNDED, Advanced, Changed, OutboxTable
from outbox_sdk.outbox_view import Backlog, OldSnapshot, OriginBacklog, OutboxView, Upkeep
from outbox_sdk.parking import DeadLetter, DeadLetters, DeadLetterStatus, Parked, Poison
from outbox_sdk.publisher import (
    MAX_CHECKPOINT,
    Attempt,
    Deliveries,
    Failure,
    Found,
    Publisher,
    Sender,
    TransactionalPublisher,
    TransactionalSender,
)
from outbox_sdk.record import Batch, Header, MarkedRecord, Record
from outbox_sdk.registry import Installed, Seam, find, installed
from outbox_sdk.schema import OLDEST, SCHEMA, Schema
from outbox_sdk.stasher import AsyncStasher, PreparedStash, Stasher

__all__ = [
    "MAX_CHECKPOINT",
    "MAX_CLUSTER",
    "OLDEST",
    "SCHEMA",
    "UNBOUNDED",
    "AccessDenied",
    "Action",
    "Address",
    "Advanced",
    "Affinity",
    "AsyncStasher",
    "Attempt",
    "Backlog",
    "Batch",
    "Candidate",
    "Capability",
    "Changed",
    "ColumnIs",
    "ConfigError",
    "DeadLetter",
    "DeadLetterStatus",
    "DeadLetters",
    "Deliveries",
    "Dialect",
    "Driver",
    "DriverError",
    "Duration",
    "Elector",
    "Engine",
    "EngineLost",
    "EngineOptions",
    "Entry",
    "Failure",
    "Fence",
    "FileText",
    "Finding",
    "Found",
    "Header",
    "Insert",
    "Installed",
    "Intake",
    "Journal",
    "LaneStatus",
    "LeadershipLost",
    "Lease",
    "Level",
    "MarkedRecord",
    "Members",
    "Needs",
    "OldSnapshot",
    "Origin",
    "OriginBacklog",
    "OutboxError",
    "OutboxTable",
    "OutboxView",
    "Parked",
    "PluginError",
    "Poison",
    "PreparedStash",
    "Publisher",
    "Record",
    "RecordError",
    "RolledBack",
    "Schema",
    "Seam",
    "Sender",
    "ServerFull",
    "Stasher",
    "Taken",
    "Takeover",
    "Task",
    "TransactionalLane",
    "TransactionalPublisher",
    "TransactionalSender",
    "Unit",
    "Upkeep",
    "WorkerLost",
    "Workers",
    "find",
    "hookimpl",
    "installed",
    "present_text",
]
