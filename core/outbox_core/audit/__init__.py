"""Compares what an application stashed and committed with what arrived on a topic."""

from outbox_core.audit.audit import Audit
from outbox_core.audit.ledger import Ledger, read_ledger
from outbox_core.audit.result import Defect, Result
from outbox_core.audit.topic import SEQUENCE_HEADER, read_topic

__all__ = ["SEQUENCE_HEADER", "Audit", "Defect", "Ledger", "Result", "read_ledger", "read_topic"]
