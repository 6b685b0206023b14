"""What applications and plugins import: records, the stasher, the seven seams and their errors.

A module is imported when one of its names is first asked for: who stashes loads nothing of an engine, and a
probe nothing of stashing.
"""

from typing import TYPE_CHECKING, Any

from outbox_api.base.lazy_names import lazily

if TYPE_CHECKING:
    from outbox_api.application.registry import Installed as Installed
    from outbox_api.application.registry import Seam as Seam
    from outbox_api.application.registry import find as find
    from outbox_api.application.registry import installed as installed
    from outbox_api.application.stasher import AsyncStasher as AsyncStasher
    from outbox_api.application.stasher import PreparedStash as PreparedStash
    from outbox_api.application.stasher import Stasher as Stasher
    from outbox_api.base.bounds import Bounds as Bounds
    from outbox_api.base.bounds import PermittedTopics as PermittedTopics
    from outbox_api.base.errors import AccessDenied as AccessDenied
    from outbox_api.base.errors import CheckpointLost as CheckpointLost
    from outbox_api.base.errors import ConfigError as ConfigError
    from outbox_api.base.errors import DriverError as DriverError
    from outbox_api.base.errors import LeadershipLost as LeadershipLost
    from outbox_api.base.errors import OutboxError as OutboxError
    from outbox_api.base.errors import PluginError as PluginError
    from outbox_api.base.errors import RecordError as RecordError
    from outbox_api.base.errors import RolledBack as RolledBack
    from outbox_api.base.errors import ServerFull as ServerFull
    from outbox_api.base.errors import TransformError as TransformError
    from outbox_api.base.errors import TransformUnavailable as TransformUnavailable
    from outbox_api.base.finding import Finding as Finding
    from outbox_api.base.finding import Level as Level
    from outbox_api.base.record import Batch as Batch
    from outbox_api.base.record import Header as Header
    from outbox_api.base.record import MarkedRecord as MarkedRecord
    from outbox_api.base.record import Record as Record
    from outbox_api.intake.intake import Intake as Intake
    from outbox_api.intake.intakes import Intakes as Intakes
    from outbox_api.intake.intakes import IntakeState as IntakeState
    from outbox_api.intake.taken import Taken as Taken
    from outbox_api.portable.dialect import PortableDialect
    from outbox_api.seams.affinity import MAX_CLUSTER as MAX_CLUSTER
    from outbox_api.seams.affinity import Affinity as Affinity
    from outbox_api.seams.affinity import ColumnIs as ColumnIs
    from outbox_api.seams.affinity import Origin as Origin
    from outbox_api.seams.affinity import Takeover as Takeover
    from outbox_api.seams.dialect import Capability as Capability
    from outbox_api.seams.dialect import Insert as Insert
    from outbox_api.seams.elector import Candidate as Candidate
    from outbox_api.seams.elector import Elector as Elector
    from outbox_api.seams.engine import Address as Address
    from outbox_api.seams.engine import Engine as Engine
    from outbox_api.seams.engine import EngineError as EngineError
    from outbox_api.seams.engine import EngineLost as EngineLost
    from outbox_api.seams.engine import EngineOptions as EngineOptions
    from outbox_api.seams.engine import Needs as Needs
    from outbox_api.seams.engine import Task as Task
    from outbox_api.seams.engine import WorkerLost as WorkerLost
    from outbox_api.seams.engine import Workers as Workers
    from outbox_api.seams.fence import Fence as Fence
    from outbox_api.seams.fence import LaneStatus as LaneStatus
    from outbox_api.seams.fence import TransactionalLane as TransactionalLane
    from outbox_api.seams.hooks import Driver as Driver
    from outbox_api.seams.hooks import Duration as Duration
    from outbox_api.seams.hooks import Unit as Unit
    from outbox_api.seams.hooks import hookimpl as hookimpl
    from outbox_api.seams.journal import Action as Action
    from outbox_api.seams.journal import Entry as Entry
    from outbox_api.seams.lease import Lease as Lease
    from outbox_api.seams.listener import HarvestEvent as HarvestEvent
    from outbox_api.seams.listener import Listener as Listener
    from outbox_api.seams.outbox_table import UNBOUNDED as UNBOUNDED
    from outbox_api.seams.outbox_table import Advanced as Advanced
    from outbox_api.seams.outbox_table import Changed as Changed
    from outbox_api.seams.outbox_table import OutboxTable as OutboxTable
    from outbox_api.seams.outbox_table import Outline as Outline
    from outbox_api.seams.outbox_table import Outlined as Outlined
    from outbox_api.seams.outbox_view import Backlog as Backlog
    from outbox_api.seams.outbox_view import OldSnapshot as OldSnapshot
    from outbox_api.seams.outbox_view import OriginBacklog as OriginBacklog
    from outbox_api.seams.outbox_view import Upkeep as Upkeep
    from outbox_api.seams.parking import DeadLetter as DeadLetter
    from outbox_api.seams.parking import DeadLetterStatus as DeadLetterStatus
    from outbox_api.seams.parking import Parked as Parked
    from outbox_api.seams.parking import Poison as Poison
    from outbox_api.seams.partitions import PartitionedPublisher as PartitionedPublisher
    from outbox_api.seams.partitions import PartitionedSender as PartitionedSender
    from outbox_api.seams.partitions import PartitionedTopic as PartitionedTopic
    from outbox_api.seams.partitions import Repartitioned as Repartitioned
    from outbox_api.seams.pausing import MAX_PAUSES as MAX_PAUSES
    from outbox_api.seams.pausing import WHOLE as WHOLE
    from outbox_api.seams.pausing import Pause as Pause
    from outbox_api.seams.publisher import MAX_CHECKPOINT as MAX_CHECKPOINT
    from outbox_api.seams.publisher import Attempt as Attempt
    from outbox_api.seams.publisher import Deliveries as Deliveries
    from outbox_api.seams.publisher import Failure as Failure
    from outbox_api.seams.publisher import Found as Found
    from outbox_api.seams.publisher import Publisher as Publisher
    from outbox_api.seams.publisher import RunSender as RunSender
    from outbox_api.seams.publisher import Sender as Sender
    from outbox_api.seams.publisher import TransactionalPublisher as TransactionalPublisher
    from outbox_api.seams.publisher import TransactionalSender as TransactionalSender
    from outbox_api.seams.schema import OLDEST as OLDEST
    from outbox_api.seams.schema import SCHEMA as SCHEMA
    from outbox_api.seams.schema import Schema as Schema
    from outbox_api.seams.transform import Outgoing as Outgoing
    from outbox_api.seams.transform import StoringTransform as StoringTransform
    from outbox_api.seams.transform import Transform as Transform
    from outbox_api.support.file_text import FileText as FileText
    from outbox_api.support.file_text import present_text as present_text

    Dialect = PortableDialect
else:
    Dialect = Any  # for annotations: who stashes loads nothing of a dialect
    __getattr__ = lazily(
        __name__,
        {
            "outbox_api.seams.affinity": "MAX_CLUSTER Affinity ColumnIs Origin Takeover",
            "outbox_api.base.bounds": "Bounds PermittedTopics",
            "outbox_api.seams.dialect": "Capability Insert",
            "outbox_api.seams.elector": "Candidate Elector",
            "outbox_api.seams.engine": "Address Engine EngineError EngineLost EngineOptions "
            "Needs Task WorkerLost Workers",
            "outbox_api.base.errors": "AccessDenied CheckpointLost ConfigError DriverError "
            "LeadershipLost OutboxError PluginError RecordError "
            "RolledBack ServerFull TransformError TransformUnavailable",
            "outbox_api.seams.fence": "Fence LaneStatus TransactionalLane",
            "outbox_api.support.file_text": "FileText present_text",
            "outbox_api.base.finding": "Finding Level",
            "outbox_api.seams.hooks": "Driver Duration Unit hookimpl",
            "outbox_api.intake.intake": "Intake",
            "outbox_api.intake.intakes": "Intakes IntakeState",
            "outbox_api.seams.journal": "Action Entry",
            "outbox_api.seams.lease": "Lease",
            "outbox_api.seams.listener": "HarvestEvent Listener",
            "outbox_api.seams.outbox_table": "UNBOUNDED Advanced Changed Outline Outlined OutboxTable",
            "outbox_api.seams.outbox_view": "Backlog OldSnapshot OriginBacklog Upkeep",
            "outbox_api.seams.parking": "DeadLetter DeadLetterStatus Parked Poison",
            "outbox_api.seams.partitions": "PartitionedPublisher PartitionedSender PartitionedTopic "
            "Repartitioned",
            "outbox_api.seams.pausing": "MAX_PAUSES WHOLE Pause",
            "outbox_api.seams.publisher": "MAX_CHECKPOINT Attempt Deliveries Failure Found "
            "Publisher RunSender Sender TransactionalPublisher "
            "TransactionalSender",
            "outbox_api.base.record": "Batch Header MarkedRecord Record",
            "outbox_api.application.registry": "Installed Seam find installed",
            "outbox_api.seams.schema": "OLDEST SCHEMA Schema",
            "outbox_api.application.stasher": "AsyncStasher PreparedStash Stasher",
            "outbox_api.intake.taken": "Taken",
            "outbox_api.seams.transform": "Outgoing StoringTransform Transform",
        },
    )
