"""What applications and plugins import: records, the stasher, the six seams and their errors."""

from typing import TYPE_CHECKING, Any

from outbox_api.affinity import MAX_CLUSTER, Affinity, ColumnIs, Origin, Takeover
from outbox_api.bounds import Bounds, PermittedTopics
from outbox_api.dialect import Capability, Insert
from outbox_api.elector import Candidate, Elector
from outbox_api.engine import (
    Address,
    Engine,
    EngineError,
    EngineLost,
    EngineOptions,
    Needs,
    Task,
    WorkerLost,
    Workers,
)
from outbox_api.errors import (
    AccessDenied,
    CheckpointLost,
    ConfigError,
    DriverError,
    LeadershipLost,
    OutboxError,
    PluginError,
    RecordError,
    RolledBack,
    ServerFull,
    TransformError,
)
from outbox_api.fence import Fence, LaneStatus, TransactionalLane
from outbox_api.file_text import FileText, present_text
from outbox_api.finding import Finding, Level
from outbox_api.hooks import Driver, Duration, Unit, hookimpl
from outbox_api.intake import Intake
from outbox_api.intakes import Intakes, IntakeState
from outbox_api.journal import Action, Entry
from outbox_api.lease import Lease
from outbox_api.outbox_table import UNBOUNDED, Advanced, Changed, OutboxTable
from outbox_api.outbox_view import Backlog, OldSnapshot, OriginBacklog, Upkeep
from outbox_api.parking import DeadLetter, DeadLetterStatus, Parked, Poison
from outbox_api.publisher import (
    MAX_CHECKPOINT,
    Attempt,
    Deliveries,
    Failure,
    Found,
    Publisher,
    RunSender,
    Sender,
    TransactionalPublisher,
    TransactionalSender,
)
from outbox_api.record import Batch, Header, MarkedRecord, Record
from outbox_api.registry import Installed, Seam, find, installed
from outbox_api.schema import OLDEST, SCHEMA, Schema
from outbox_api.stasher import AsyncStasher, PreparedStash, Stasher
from outbox_api.taken import Taken
from outbox_api.transform import Outgoing, Transform

if TYPE_CHECKING:
    from outbox_api.portable.dialect import PortableDialect as Dialect
else:
    Dialect = Any  # for annotations: who stashes loads nothing of a dialect

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
    "Bounds",
    "Candidate",
    "Capability",
    "Changed",
    "CheckpointLost",
    "ColumnIs",
    "ConfigError",
    "DeadLetter",
    "DeadLetterStatus",
    "Deliveries",
    "Dialect",
    "Driver",
    "DriverError",
    "Duration",
    "Elector",
    "Engine",
    "EngineError",
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
    "IntakeState",
    "Intakes",
    "LaneStatus",
    "LeadershipLost",
    "Lease",
    "Level",
    "MarkedRecord",
    "Needs",
    "OldSnapshot",
    "Origin",
    "OriginBacklog",
    "OutboxError",
    "OutboxTable",
    "Outgoing",
    "Parked",
    "PermittedTopics",
    "PluginError",
    "Poison",
    "PreparedStash",
    "Publisher",
    "Record",
    "RecordError",
    "RolledBack",
    "RunSender",
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
    "Transform",
    "TransformError",
    "Unit",
    "Upkeep",
    "WorkerLost",
    "Workers",
    "find",
    "hookimpl",
    "installed",
    "present_text",
]
