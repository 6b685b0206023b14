"""Compares what an application stashed and committed with what arrived on a topic."""

from outbox_audit.audit import Audit
from outbox_audit.comparison import Comparison, compare
from outbox_audit.ledger import Entry, Ledger, read_entries, read_ledger
from outbox_audit.result import Defect, Result
from outbox_audit.topic import SEQUENCE_HEADER, Isolation, read_topic

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
