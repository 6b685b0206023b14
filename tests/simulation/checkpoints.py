"""What a checkpoint must say when it is written, and when the commit of its transaction is asked for."""

from __future__ import annotations

from outbox_core.delivery.checkpoint import decode
from outbox_core.transforms.torn import TornRows

from .audit import Audit
from .base_statements import names
from .database import Database
from .log import Publication
from .tables import Row
from .trail import Violation


def check_published(database: Database, audit: Audit, publication: Publication) -> None:
    """*checkpoint*: it names exactly those rows of its lane that transactions have committed before.

    It is read whatever becomes of its own transaction. Who deletes all that it names deletes nothing that is
    not in the log; and who publishes all else, but for what is attempted, publishes nothing twice.
    """
    if _is_unread(database, publication):
        return
    session, torn = publication.session, TornRows()
    fence = database.fence.get(session.lane)
    lanes = fence.note.lanes if fence and fence.note else session.lanes  # a former lane may be settled
    published = decode(torn.read(publication.checkpoint)).published
    for number in audit.transacted & database.serials.keys():
        row = database.serials[number]
        mine = row.bucket % lanes == session.lane
        partly = any(torn.among([row.id]))
        if mine and not partly and not names(published, row) and not audit.entries[number].forgiven:
            _violate(publication, row, "does not name a record that is in the log")
    for number in {number for batch in published for number in batch.ids()} & database.rows.keys():
        row = database.rows[number]
        skipped = audit.entries[row.serial].skipped
        if names(published, row) and row.serial not in audit.transacted and not skipped:
            _violate(publication, row, "names a record that is not in the log")


def check_attempted(database: Database, publication: Publication) -> None:
    """*checkpoint*: it names as attempted all records of a transaction that may be committed from now on."""
    if _is_unread(database, publication):
        return
    checkpoint = publication.checkpoint
    attempted = decode(TornRows().read(checkpoint)).attempted if checkpoint else None
    for number in publication.numbers:
        row = database.serials.get(number)
        if row is not None and not (attempted and names([attempted], row)):
            _violate(publication, row, "does not name a record that it is committed with")


def _is_unread(database: Database, publication: Publication) -> bool:
    """Whether a superseded lane writes a checkpoint where nobody will look."""
    fence = database.fence.get(publication.session.lane)
    noted = (fence.note.sender, fence.note.location) if fence and fence.note else None
    return (
        publication.session.superseded
        and noted is not None
        and noted != (publication.sender, publication.location)
    )


def _violate(publication: Publication, row: Row, how: str) -> None:
    session = publication.session
    text = f"the checkpoint of {session.name} {how}: {row.serial}"
    raise Violation("checkpoint", text, row.key, session.lane)
