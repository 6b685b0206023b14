"""What a checkpoint must say, whenever one is certain to be committed."""

from __future__ import annotations

from outbox_core.delivery.checkpoint import decode

from .audit import Audit
from .database import Database
from .log import Publication
from .tables import Row
from .trail import Violation


def check_checkpoint(database: Database, audit: Audit, publication: Publication) -> None:
    """*checkpoint*: it names exactly those rows of its lane that a transaction has committed.

    Who deletes all that it names deletes nothing that is not in the log; and who publishes all else publishes
    nothing twice. What a superseded lane writes where nobody will look says nothing.
    """
    session = publication.session
    fence = database.fence.get(session.lane)
    noted = (fence.note.sender, fence.note.location) if fence and fence.note else None
    if session.superseded and noted and noted != (publication.sender, publication.location):
        return
    named: dict[int, float] = {}
    for batch in decode(publication.checkpoint).batches:
        newest = float(batch.newest) if batch.newest else float("inf")
        for number in batch.ids():
            named[number] = max(newest, named.get(number, newest))

    def names(row: Row) -> bool:
        return row.id in named and row.created <= named[row.id]

    for number in audit.transacted & database.serials.keys():
        row = database.serials[number]
        mine = row.bucket % session.lanes == session.lane
        if mine and not names(row) and not audit.entries[number].forgiven:
            _violate(publication, row, "does not name a record that is in the log")
    for number in named.keys() & database.rows.keys():
        row = database.rows[number]
        if names(row) and row.serial not in audit.transacted:
            _violate(publication, row, "names a record that is not in the log")


def _violate(publication: Publication, row: Row, how: str) -> None:
    session = publication.session
    text = f"the checkpoint of {session.name} {how}: {row.serial}"
    raise Violation("checkpoint", text, row.key, session.lane)
