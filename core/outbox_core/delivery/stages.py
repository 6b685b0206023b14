"""The stages of a batch of exactly-once delivery."""

from __future__ import annotations

from enum import StrEnum


class BatchStage(StrEnum):
    """Where a batch of exactly-once delivery has come to."""

    MARKED = "marked"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    PURGED = "purged"
    ABANDONED = "abandoned"
