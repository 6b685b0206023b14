"""The options of the transform, as users write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_api import ConfigError
from outbox_api.seams.hooks import Duration

_URL = re.compile(r"[a-z][a-z0-9+.-]*:///?[^\s?#/][^\s?#]*")
_PASSWORD = re.compile(r"://[^/]*:(?!\d+(/|$)).*@")  # which may have a slash; a port is none


@dataclass(frozen=True)
class ClaimCheckOptions:
    """The transform ``claim-check``.

    Attributes:
        store: The URL below which values are written, as fsspec knows it: ``s3://bucket/claims``.
        above: Values of more bytes than this are; others stay in their records.
        store_options: What fsspec passes to the library of the store, by its names.
        timeout: How long a write may take.
    """

    store: str
    above: int = 900_000
    store_options: Mapping[str, Any | None] = field(default_factory=dict, repr=False)
    timeout: Duration = field(default=10.0, repr=False)  # another one makes the same of records

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.store) or "::" in self.store:
            raise ConfigError("'store' is one URL, such as s3://bucket/claims, without a query")
        if _PASSWORD.search(self.store):
            raise ConfigError("'store' has a password, and travels in records: write it below 'storeOptions'")
        if self.above < 0 or self.timeout <= 0:
            raise ConfigError("'above' is a number of bytes, and 'timeout' more than nothing")
