"""Compares what an application stashed and committed with what arrived on a topic."""

from outbox_core.audit.audit import Audit
from outbox_core.audit.comparison import Comparison, compare
from outbox_core.audit.ledger import Entry, Ledger, read_entries, read_ledger
from outbox_core.audit.result import Defect, Result
from outbox_core.audit.topic import SEQUENCE_HEADER, Isolation, read_topic

__all__ = [
    "SEQUENCE_HEADER",
    "Audit",
    "Comparison",
    "Defect",
    "Entry",
    "Isolation",
    "Ledger",
    "Result",
    "compare",
    "read_entries",
    "read_ledger",
    "read_topic",
]
