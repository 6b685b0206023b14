"""The transform: stores a large value, and publishes a reference to it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from outbox_api import Finding, Level, Outgoing, TransformUnavailable

from outbox_claim_check.options import ClaimCheckOptions
from outbox_claim_check.reference import HEADER, name_of, url_of
from outbox_claim_check.store import Store


class ClaimCheck:
    """A :class:`outbox_api.StoringTransform`; what it makes of a record depends on the record alone."""

    def __init__(self, options: ClaimCheckOptions) -> None:
        self._options = options
        self._store = Store(options)

    def store(self, record: Outgoing) -> None:
        """Writes a large value, even if it is there: a store deletes objects by the age of the last write."""
        content = self._large(record)
        if content is not None:
            self._store.write(name_of(content), content)

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Puts a reference in place of a large value, as JSON, and its URL into a header.

        A record that stays has no such header of another value, which an application may have passed on.
        """
        content = self._large(record)
        if content is None:
            own = tuple(each for each in record.headers if each[0] != HEADER or _is_claim(record, each[1]))
            return [record if len(own) == len(record.headers) else record._replace(headers=own)]
        url = url_of(self._options.store, name_of(content))
        text = json.dumps({"claim": url, "bytes": len(content)})
        headers = (*(each for each in record.headers if each[0] != HEADER), (HEADER, url))
        value = text.encode() if isinstance(record.value, bytes) else text
        return [record._replace(value=value, headers=headers)]

    def check(self) -> Sequence[Finding]:
        """Writes an empty object."""
        try:
            self._store.write(name_of(b""), b"")
        except TransformUnavailable as error:
            cure = "create it, and let this user write there; 'storeOptions' are what its library needs"
            return [Finding(Level.ERROR, "store", str(error), cure)]
        return [Finding(Level.OK, "store", f"{self._options.store} takes objects")]

    def _large(self, record: Outgoing) -> bytes | None:
        """Returns a value that is stored; ``None`` if it stays where it is, as a tombstone does."""
        value = record.value.encode() if isinstance(record.value, str) else record.value
        return value if value is not None and len(value) > self._options.above else None


def _is_claim(record: Outgoing, url: str | bytes | None) -> bool:
    """Returns whether a record's value is a reference to this URL, as of a record that is mirrored."""
    value = record.value.encode() if isinstance(record.value, str) else record.value or b""
    text = url.decode(errors="replace") if isinstance(url, bytes) else url or ""
    return value.startswith(json.dumps({"claim": text})[:-1].encode())
