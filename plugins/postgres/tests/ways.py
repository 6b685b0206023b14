"""Every way to connect to an outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outbox_postgres import PostgresDialect

WAYS: dict[str, Callable[[PostgresDialect], Any]] = {
    "connect": lambda dialect: dialect.connect(),
    "watch": lambda dialect: dialect.watch(),
    "dead letters": lambda dialect: dialect.dead_letters(),
    "dead letters to read": lambda dialect: dialect.dead_letters(read_only=True),
    "journal": lambda dialect: dialect.journal(),
    "journal to read": lambda dialect: dialect.journal(read_only=True),
    "lease": lambda dialect: dialect.lease(),
    "members": lambda dialect: dialect.members(),
}
