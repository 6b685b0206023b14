"""The MySQL dialect: an outbox in MySQL or MariaDB, its own or one that is a table of another layout."""
# ruff: noqa: S608 - names come quoted, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar

from outbox_api import Capability, Finding
from outbox_api.portable import (
    SERVER_CAPABILITIES,
    Idiom,
    PortableDialect,
    PortableIntake,
    Session,
    TableName,
)
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.intake_table import refusal
from outbox_api.portable.sources import quoted

from outbox_mysql import idiom
from outbox_mysql.idiom import MySqlIdiom
from outbox_mysql.options import MySqlOptions

_INDEX = (
    f"SELECT index_name FROM information_schema.statistics {idiom.OF_TABLE}"
    " AND column_name = {column} AND seq_in_index = 1 ORDER BY non_unique, index_name = 'PRIMARY' DESC"
)

_GREATEST = 2**63 - 1


class MySqlIntake(PortableIntake):
    """Finds rows by an index: a statement without one would wait for every open INSERT into the table."""

    def _look(self, extras: Collection[str]) -> None:
        super()._look(extras)
        if self.facts[self._intake.id].type.startswith("float"):
            reason = f"'{self._intake.id}' is a FLOAT, whose values find no row again"
            raise refusal(self._intake, reason, "make it a DOUBLE, or name another column as intake.id")
        schema, table = self._table
        found = self.session.query(
            f"look at the indexes of table {table}",
            _INDEX,
            schema=schema,
            table=table,
            column=self._intake.id,
        )
        if not found:
            raise refusal(
                self._intake,
                f"without an index that begins with '{self._intake.id}' each deletion would wait for all who "
                "write into it",
                "create one",
            )
        self._index = self._name(str(found[0][0]))

    def _found_in(self) -> str:
        return f"{self._source} FORCE INDEX ({self._index})"

    def _change(self) -> tuple[ChangeByIds, Mapping[str, object]]:
        change, values = super()._change()
        return replace(change, index=self._index), values

    def _change_at(self, places: Sequence[Any]) -> int:
        if all(isinstance(place, int) and place <= _GREATEST for place in places):
            return super()._change_at(places)
        # For a list of texts a server may prefer a scan of the whole table, and none lists greater numbers.
        changes = self.changes
        if changes.assignments:
            one = f"UPDATE {self._found_in()} SET {changes.assignments} WHERE {self._place} = {{key}}"
        else:
            table = quoted(self.session.idiom, TableName("", self._table.table))
            hint = f"/*+ INDEX({table} {self._index}) */"
            one = f"DELETE {hint} FROM {self._source} WHERE {self._place} = {{key}}"
        return sum(self.session.execute(one, key=key, **self._done) for key in places)


class MySqlDialect(PortableDialect):
    """An outbox in a MySQL or MariaDB database."""

    idiom: ClassVar[Idiom] = MySqlIdiom()
    capabilities: ClassVar[frozenset[Capability]] = SERVER_CAPABILITIES | {Capability.SKIP_LOCKED}
    intake_type: ClassVar[type[PortableIntake]] = MySqlIntake
    options: MySqlOptions

    @property
    def address(self) -> str:
        """The server and the database in words, without secrets."""
        return self.options.source.address

    @property
    def dataset(self) -> tuple[str, str]:
        """The outbox as catalogs of data name it."""
        source = self.options.source
        server = f"mysql://{source.host or 'localhost'}:{source.port or 3306}"
        return server, ".".join(filter(None, self.options.outbox.within(source.database)))

    @property
    def secrets(self) -> Sequence[str]:
        """The password."""
        password = self.options.source.password
        return (password,) if password else ()

    def open(self) -> Any:
        """Opens a session for the harvester."""
        from outbox_mysql.connection import HarvestConnection  # noqa: PLC0415 - loads PyMySQL only when needed

        return HarvestConnection(self.options)

    def open_as_application(self) -> Any:
        """Opens a connection as an application would."""
        from outbox_mysql.connection import open_plain  # noqa: PLC0415 - loads PyMySQL only when needed

        return open_plain(self.options)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statement that creates the outbox."""
        return [idiom.outbox(table, binary=self.options.binary, by_day=self.options.by_day)]

    def free_connections(self) -> int:
        """Returns how many more connections the server and the account permit."""
        from outbox_mysql.check import free_connections  # noqa: PLC0415 - for a check only

        with closing(self.session(watches=True)) as session:
            return free_connections(session)

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks the server's version and settings, the tables' types and the account's privileges."""
        from outbox_mysql.check import findings  # noqa: PLC0415 - for a check only

        yield from findings(session, self.options)
