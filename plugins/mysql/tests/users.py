"""Users of a server with rights of their own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pymysql
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_testkit.conformance.under_test import Box


@dataclass(frozen=True)
class User:
    """A user, whose password is the name.

    Attributes:
        admin: A connection that may grant.
        name: The user's name.
    """

    admin: pymysql.Connection[Any]
    name: str

    def grant(self, rights: str) -> None:
        """Grants rights, as they stand between GRANT and TO."""
        self.admin.cursor().execute(f"GRANT {rights} TO {self.name}")


def create_user(admin: pymysql.Connection[Any], stack: ExitStack) -> User:
    """Creates a user without rights, and drops it at the end."""
    user = User(admin, f"u{uuid4().hex[:12]}")
    admin.cursor().execute(f"CREATE USER {user.name} IDENTIFIED BY '{user.name}'")
    stack.callback(admin.cursor().execute, f"DROP USER {user.name}")
    return user


def create_harvester(box: Box, admin: pymysql.Connection[Any], stack: ExitStack) -> tuple[User, MySqlDialect]:
    """Creates a user with the rights that a harvester needs; returns it with its dialect."""
    user = create_user(admin, stack)
    options: MySqlOptions = box.options
    for each, rights in (
        (options.tables.outbox, "SELECT, UPDATE, DELETE"),
        (options.tables.fence, "SELECT, INSERT, UPDATE"),
        (options.tables.notes, "SELECT, INSERT, UPDATE"),
        (options.tables.dead_letters, "SELECT, INSERT, UPDATE, DELETE"),
    ):
        user.grant(f"{rights} ON {each}")
    return user, MySqlDialect(signed_in(options, user))


def signed_in(options: MySqlOptions, user: User) -> MySqlOptions:
    """Returns the options with which the user signs in."""
    parts = urlsplit(str(options.data_source))
    place = f"{user.name}:{user.name}@{parts.hostname}:{parts.port}"
    return replace(options, data_source=urlunsplit(parts._replace(netloc=place)))


def connection_of(options: MySqlOptions, user: User) -> pymysql.Connection[Any]:
    """Opens an application's connection for a user."""
    from outbox_mysql.connection import open_plain  # noqa: PLC0415 - loads PyMySQL only when needed

    return open_plain(signed_in(options, user))
