"""What a portable dialect tells about its outbox, for those who create, check and migrate its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.origin_columns import OriginColumns
from outbox_sdk.portable.session import Session


class Described(Protocol):
    """A part of :class:`outbox_sdk.portable.PortableDialect`, which has the docstrings."""

    options: Any

    @property
    def idiom(self) -> Idiom: ...  # noqa: D102 - see the class
    @property
    def address(self) -> str: ...  # noqa: D102 - see the class
    def tables(self) -> Mapping[TableName, Sequence[str]]: ...  # noqa: D102 - see the class
    def canonical_name(self, session: Session) -> TableName: ...  # noqa: D102 - see the class
    def alterations(self, session: Session) -> Sequence[str]: ...  # noqa: D102 - see the class
    def origin_columns(self) -> OriginColumns | None: ...  # noqa: D102 - see the class
