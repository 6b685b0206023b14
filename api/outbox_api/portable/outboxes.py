"""Finds the outboxes of a database by a pattern of their names, and keeps the list of a group's members."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from outbox_api.base.errors import ConfigError
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.session import AlreadyExists, Session
from outbox_api.portable.statements import Statements
from outbox_api.portable.table_idiom import TableName, bounded

TELLING_COLUMNS = ("kafka_topic", "kafka_key", "leader_id")
"""The columns by which a table is taken for an outbox."""

_STANDS_FOR_ANY = "\u01c0"
"""A letter that has no other case: with it for each asterisk, a pattern is read as a name is."""


class TablePattern:
    """A pattern of tables' names: ``schema.table`` or ``table``, with ``*`` for any characters.

    Args:
        text: The pattern; its parts are quoted as those of names are.
        read: Reads a table's name as the database does.
        plain: Removes the quotes that ``read`` leaves on a part.
        flags: How to compare, for ``re``.

    Attributes:
        schema: The pattern of the schema; empty if it names none.

    Raises:
        ConfigError: It is malformed.
    """

    def __init__(
        self,
        text: str,
        read: Callable[[str], TableName] = TableName.parse,
        plain: Callable[[str], str] = str,
        *,
        flags: re.RegexFlag = re.IGNORECASE,
    ) -> None:
        try:
            name = read(text.replace("*", _STANDS_FOR_ANY))
        except ConfigError:
            raise ConfigError(
                f"'{text}' is no pattern of tables: write table or schema.table, with * for any characters; "
                'put a part that holds anything but letters, digits, _ and * in double quotes, "like-*"'
            ) from None
        self.schema, self._table = name.schema and plain(name.schema), plain(name.table)
        self._read = read
        self._flags = flags

    def names(self, found: Iterable[tuple[str, str]]) -> list[str]:
        """Returns those of ``found``, schemas and tables, that match: sorted, as the option ``table`` is
        written, and with the schema if the pattern has one.
        """
        return sorted(
            ".".join(self._written(part) for part in ((schema, table) if self.schema else (table,)))
            for schema, table in found
            if self._matches(self._table, table) and (not self.schema or self._matches(self.schema, schema))
        )

    def _matches(self, pattern: str, name: str) -> bool:
        wanted = ".*".join(map(re.escape, pattern.split(_STANDS_FOR_ANY)))
        return re.fullmatch(wanted, name, self._flags | re.DOTALL) is not None

    def _written(self, part: str) -> str:
        """Writes a part of a name: in double quotes, unless it is read as it is."""
        try:
            if self._read(part) == TableName("", part):
                return part
        except ConfigError:
            pass
        return '"' + part.replace('"', '""') + '"'


def find_outboxes(idiom: Idiom, *, everywhere: bool) -> str:
    """Writes the query for schema and name of tables that have the columns of an outbox."""
    telling = ", ".join(f"'{column}'" for column in TELLING_COLUMNS)
    here = "" if everywhere else f" AND schema_name = {idiom.current_schema}"
    return (
        f"SELECT schema_name, table_name FROM ({idiom.catalogue}) found"
        f" WHERE LOWER(column_name) IN ({telling}){here}"
        f" GROUP BY schema_name, table_name HAVING COUNT(*) = {len(TELLING_COLUMNS)}"
    )


GROUP_LENGTH = 64
MEMBER_LENGTH = 128
"""Bytes of a name that every table can hold."""

_FORGOTTEN = 10
"""After how many times ``seconds`` the row of a silent member is another's to use."""


class MemberRow(NamedTuple):
    """A row that is, or was, a member's.

    Attributes:
        name: The member's name.
        group: Its group.
        leads: How many outboxes it leads; ``None`` once it has left.
        age: Seconds since it noted itself.
        about: What it says of itself.
    """

    name: str
    group: str
    leads: int | None
    age: float
    about: str = ""


def present(rows: Iterable[MemberRow], group: str, seconds: float) -> dict[str, int]:
    """Returns member → how many outboxes it leads, for those of a group that are here."""
    group = bounded(group, GROUP_LENGTH)
    return {
        row.name: row.leads
        for row in rows
        if row.group == group and row.leads is not None and row.age <= seconds
    }


class PortableMembers:
    """A connection to the list of harvesters that are alive, which has rows of a table; used by one thread.

    The list says who is here and how many outboxes each leads. Nothing depends on it but how evenly the
    leaderships are spread, so it need not survive a crash of the database.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached. It is then
    unknown until the next call whether the call took effect.

    Nobody needs the right to delete rows. A member therefore takes over a row that another has
    left behind, and adds one only where there is none. Each statement is a transaction of its own, which
    locks one row.
    """

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._statements = MemberStatements(sql)
        self._about: str | None = None  # as it was written last

    def beside(self, dialect: Any) -> PortableMembers:
        """Returns the list beside another outbox of this database, over the same connection."""
        return PortableMembers(self._session, Statements(dialect.idiom, dialect.names(self._session)))

    def names(self, dialects: Iterable[Any]) -> Sequence[str]:
        """Returns the names of outboxes of this database as it knows them."""
        return [dialect.names(self._session).name for dialect in dialects]

    def note(self, group: str, member: str, leads: int, seconds: float, about: str = "") -> Mapping[str, int]:
        """Notes that a member is here, and how many outboxes it leads.

        A list that is kept by a database never grows beyond the most members that were alive at a time: the
        place of one that has left, or has not noted itself for ten times ``seconds``, is given to the next.

        Args:
            group: The members that share outboxes; 64 characters. A longer name is cut and made distinct.
            member: A name that no other process has ever used; 128 characters, as above.
            leads: How many outboxes the member leads, 0 or more.
            seconds: For how long a member counts after it has noted itself, by the database's clock.
            about: What the member says of itself; written only if it differs from that of the last call.

        Returns:
            Member → how many outboxes it leads, for all members of the group that count, itself included.
        """
        own = MemberRow(bounded(member, MEMBER_LENGTH), bounded(group, GROUP_LENGTH), leads, 0, about)
        forgotten = _FORGOTTEN * seconds
        known = self.renew_row(own) if about == self._about else self.take_row(own.name, own, forgotten)
        rows = read_members(self._session, self._statements)
        others = [row for row in rows if row.name != own.name]
        if not known:
            free = [row.name for row in others if row.leads is None or row.age > forgotten]
            if not any(self.take_row(name, own, forgotten) for name in free):
                self.add_row(own)
        self._about = about
        return {**present(others, group, seconds), member: leads}

    def leave(self, member: str) -> None:
        """Takes a member off the list at once. Idempotent, as is a note afterwards, which puts it back."""
        with self._session.transaction("leave the members"):
            self._session.execute(self._statements.free_row, member=bounded(member, MEMBER_LENGTH))

    def renew_row(self, row: MemberRow) -> bool:
        """Notes a member that has a row, but for what it says of itself; returns whether it has one."""
        values = {"member": row.name, "member_group": row.group, "leads": row.leads}
        with self._session.transaction("note the member"):
            return self._session.execute(self._statements.renew_row, **values) > 0

    def take_row(self, former: str, row: MemberRow, seconds: float) -> bool:
        """Makes the row ``former`` into ``row``, as of now; returns whether it did.

        Only if that is the member's own already, or its member has left, or is silent for more than
        ``seconds``.
        """
        values = {"former": former, **_values(row)}
        with self._session.transaction("note the member"):
            return self._session.execute(self._statements.take_row, **values, seconds=seconds) > 0

    def add_row(self, row: MemberRow) -> None:
        """Adds a row, as of now. Does nothing if the member has one."""
        try:
            with self._session.transaction("add the member"):
                self._session.execute(self._statements.add_row, **_values(row))
        except AlreadyExists:
            pass  # by an earlier call that failed only after its commit

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()


class MemberStatements:
    """The statements about the members beside one outbox.

    Attributes:
        rows: Returns name, group, outboxes led, age, and what is said of it, of each row.
        renew_row: Notes ``{member}``, which has a row.
        take_row: Makes the row ``{former}`` into that of ``{member}``, if that may be.
        add_row: Adds a row.
        free_row: Notes that ``{member}`` has left.
    """

    def __init__(self, sql: Statements) -> None:
        idiom, members = sql.idiom, sql.members
        # ruff: noqa: S608 - the table's name is quoted, and every value is a parameter
        self.rows = (
            f"SELECT member, member_group, leads, {idiom.age_seconds('seen_at')}, about"
            f" FROM {idiom.snapshot_read(members)}"
        )
        noted = f"member_group = {{member_group}}, leads = {{leads}}, seen_at = {idiom.now}"
        self.renew_row = f"UPDATE {members} SET {noted} WHERE member = {{member}}"
        self.take_row = (
            f"UPDATE {members} SET member = {{member}}, about = {{about}}, {noted} WHERE member = {{former}}"
            f" AND (member = {{member}} OR leads IS NULL OR {idiom.older_than('seen_at')})"
        )
        self.add_row = (
            f"INSERT INTO {members} (member, member_group, leads, about, seen_at)"
            f" VALUES ({{member}}, {{member_group}}, {{leads}}, {{about}}, {idiom.now})"
        )
        self.free_row = f"UPDATE {members} SET leads = NULL WHERE member = {{member}}"


def read_members(session: Session, statements: MemberStatements) -> list[MemberRow]:
    """Returns all rows of members."""
    rows, text = session.query("read the members", statements.rows), session.idiom.read_text
    return [
        MemberRow(
            str(name), str(group or ""), None if leads is None else int(leads), float(age), text(about) or ""
        )
        for name, group, leads, age, about in rows
    ]


def _values(row: MemberRow) -> dict[str, object]:
    return {"member": row.name, "member_group": row.group, "leads": row.leads, "about": row.about}
