"""What a portable dialect tells about its outbox, for those who create, check and migrate its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.tables import Tables


class Described(Protocol):
    """A part of :class:`outbox_sdk.portable.PortableDialect`, which has the docstrings."""

    options: Any

    @property
    def idiom(self) -> Idiom: ...  # noqa: D102 - see the class
    @property
    def address(self) -> str: ...  # noqa: D102 - see the class
    def tables(self, names: Tables) -> Mapping[TableName, Sequence[str]]: ...  # noqa: D102 - see the class
    def names(self, session: Session) -> Tables: ...  # noqa: D102 - see the class
    def additions(self, session: Session) -> Sequence[Sequence[str]]: ...  # noqa: D102 - see the class
    def alterations(self, session: Session) -> Sequence[str]: ...  # noqa: D102 - see the class
