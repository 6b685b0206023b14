"""The stages of a batch of exactly-once delivery."""

from __future__ import annotations

from enum import StrEnum


class BatchStage(StrEnum):
    """The stage that a batch of exactly-once delivery has reached."""

    SELECTED = "selected"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    PURGED = "purged"
    ABANDONED = "abandoned"
