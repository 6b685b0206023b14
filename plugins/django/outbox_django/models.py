"""Tables of an outbox as Django's, for the admin, and for ``flush``, which empties them.

A model has the columns that these read. The dialect's DDL creates the tables (:mod:`outbox_django.tables`).
"""

from __future__ import annotations

from typing import Any

from django.db import models

from outbox_django.outboxes import written


class _Nothing(models.Manager):
    """Has ``dumpdata`` leave out all rows: a record that is loaded elsewhere would be sent from there."""

    def get_queryset(self) -> Any:
        """Returns nothing."""
        return super().get_queryset().none()


class _Row(models.Model):
    id = models.BigIntegerField(primary_key=True)
    topic = models.TextField(db_column="kafka_topic")
    key = models.TextField(db_column="kafka_key")

    objects = _Nothing()  # the default, by this name of no interest to migrations
    rows = models.Manager()  # noqa: DJ012 - behind the default

    class Meta:
        abstract = True

    def __str__(self) -> str:
        """Returns what names a record to people."""
        return f"{self.topic} {self.key}"


def refuse_to_save(sender: type[models.Model], **_: object) -> None:
    """Refuses a row, of a fixture as well: without the columns of a record it would be a tombstone."""
    raise ValueError(f"a row of {sender.__name__} is not saved: records are written by outbox_django.stash")


class StashedRecord(_Row):
    """A row of the outbox."""

    class Meta:
        """Where it is, and who may do what in the admin."""

        db_table = written("TABLE")
        default_permissions = ()
        base_manager_name = "objects"  # of `dumpdata --all`


class DeadLetter(_Row):
    """A record that could not be delivered; its key is parked, or it was skipped.

    Its id tells it from others of the outbox that ``name`` names; the table has those of all in its schema.
    """

    name = models.TextField()
    status = models.TextField()
    reason = models.TextField()
    attempts = models.BigIntegerField()
    since = models.DateTimeField()

    class Meta:
        """Where it is, and who may do what in the admin."""

        db_table = "outbox_dead_letters"
        default_permissions = ("view", "change")
        base_manager_name = "objects"
