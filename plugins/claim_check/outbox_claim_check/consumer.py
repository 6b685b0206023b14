"""What consumers call to read a value that a record has a reference to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outbox_claim_check.reference import HEADER, name_in, name_of


class ClaimError(ValueError):
    """A reference leads to another place than the store, or to another content than the record's."""


def fetch(
    headers: Iterable[tuple[str, str | bytes | None]] | None,
    value: bytes | None,
    store: str,
    **store_options: Any,
) -> bytes | None:
    """Returns the value of a consumed record, wherever it is; that of a record without a claim as it is.

    Whoever can write to the topic chooses the reference. So it is followed only to an object of ``store``,
    and only if its content is the one that it was written with.

    Args:
        headers: The record's headers, as clients of Kafka give them.
        value: The record's own value.
        store: The URL that the harvester has as ``store``.
        store_options: What fsspec passes to the library of the store, with rights to read.

    Raises:
        ClaimError: The reference is none of this store's; or the content is another: read it again, as
            somebody may be writing it to a file system.
        FileNotFoundError: The object is not there (any more).
        Exception: What the library raises if the store cannot be reached, or refuses.
    """
    claims = [claim for name, claim in headers or () if name == HEADER]
    if not claims:
        return value
    claim = claims[-1].decode(errors="replace") if isinstance(claims[-1], bytes) else claims[-1] or ""
    name = name_in(store, claim)
    if name is None:
        raise ClaimError(f"the header {HEADER} names no object of {store}")
    import fsspec  # noqa: PLC0415 - whoever reads options of the transform needs none

    files, path = fsspec.core.url_to_fs(store, **store_options)
    content: bytes = files.cat_file(f"{path.rstrip('/')}/{name}")
    if name_of(content) != name:
        raise ClaimError(f"{claim} has another content than it was written with")
    return content
