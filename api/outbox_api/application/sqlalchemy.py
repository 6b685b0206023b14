"""The tables of an outbox as SQLAlchemy's, so that an application's own migrations make and keep them.

They are read from the dialect's DDL, so they are what ``outbox init`` creates, column by column, and Alembic
proposes neither to drop an outbox nor to change one. Needs SQLAlchemy 2.0; the rest of the package does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Identity,
    Index,
    MetaData,
    Table,
    event,
    text,
    types,
)
from sqlalchemy.dialects import registry
from sqlalchemy.exc import CompileError, IntegrityError
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.schema import DDL
from sqlalchemy.types import TypeEngine, UserDefinedType

from outbox_api.application.inbox import Inbox
from outbox_api.application.registry import Seam, find
from outbox_api.application.sqlalchemy_target import require_joint, translated
from outbox_api.application.stasher import Insertion
from outbox_api.base.bounds import Bounds
from outbox_api.base.errors import ConfigError
from outbox_api.base.record import Record

SQLALCHEMY_NAMES = {
    "postgres": "postgresql",
    "mysql": "mysql",
    "sqlite": "sqlite",
    "oracle": "oracle",
    "sqlserver": "mssql",
}
"""The driver name of a dialect → SQLAlchemy's name of the database."""
_PART = r'(?:"[^"]*"|`[^`]*`|\[[^\]]*\]|[^\s.(]+)'
_TABLE = re.compile(rf"CREATE TABLE (?:IF NOT EXISTS )?({_PART}(?:\.{_PART})*) \(\n(.*?)\n\)(.*)", re.DOTALL)
_INDEX = re.compile(rf"CREATE INDEX (?:IF NOT EXISTS )?({_PART}) ON .+? \((.*?)\)(?: WHERE (.*))?")
_COLUMN = re.compile(
    r"(\S+) (.+?)( (?:NOT NULL|DEFAULT (?!CHAR)|PRIMARY KEY|GENERATED|IDENTITY|AUTO_?INCREMENT).*)?,?"
)
_KEY = re.compile(r"PRIMARY KEY \((.*)\)")
_DEFAULT = re.compile(r" DEFAULT (\(.*\)|'[^']*'|\S+)")
_CHECK = re.compile(r"CHECK \((.*)\)")
_TYPE = re.compile(
    r"([A-Z0-9 ]+?\b)(?:\((\w+)(?: (?:CHAR|BYTE))?\))?(?: CHARACTER SET (\w+))?(?: COLLATE (\w+))?( WITH .*)?"
)
_SETTING = re.compile(r"(\w+) = (\w+)")
_MYSQL_OPTION = re.compile(r"(ENGINE|ROW_FORMAT|DEFAULT CHARACTER SET|COLLATE)(?: =)? (\w+)")
_SPELLINGS = {"mysql": ("mysql", "mariadb")}
_QUOTES = '"`[]'


class Written(UserDefinedType[Any]):
    """A type as the database writes it, for which SQLAlchemy has no class of its own."""

    cache_ok = True

    def __init__(self, written: str) -> None:
        self.written = written

    def get_col_spec(self, **_: Any) -> str:
        """Returns the type as DDL."""
        return self.written

    def __repr__(self) -> str:
        return f"Written({self.written!r})"


class Stashable:
    """What classes of records have in common: they are written at the next flush."""


def outbox_table(metadata: MetaData, dialect: str = "postgres", **options: Any) -> Table:
    """Adds the tables of an outbox to ``metadata``: the outbox, and those beside it. Connects to nothing.

    ``metadata.create_all`` then also does what else ``outbox init`` would do. After a migration by Alembic,
    which creates nothing but tables and indexes, ``outbox init`` does it.

    Args:
        metadata: The application's.
        dialect: The driver name of the database's dialect, whose plugin must be installed.
        options: Options of the dialect in Python's spelling, such as ``table="shop.outbox"``.

    Returns:
        The outbox itself.

    Raises:
        PluginError: The dialect is not installed.
        ConfigError: An option cannot be used, or SQLAlchemy's name of the database is not known.
    """
    driver = find(Seam.DIALECT, dialect)
    if options.get("by_day"):
        raise ConfigError(
            "an outbox in partitions is created by 'outbox init', and described without 'by_day'"
        )

    def ddl(table: str) -> Sequence[str]:
        return driver.create(driver.options(**{**options, "table": table})).ddl()

    return _first_table(metadata, dialect, ddl, driver.options(**options).table)


def inbox_table(metadata: MetaData, dialect: str = "postgres", table: str = "outbox_inbox") -> Table:
    """Adds the table of an :class:`.Inbox` to ``metadata``; the rest as :func:`outbox_table`."""
    return _first_table(metadata, dialect, lambda table: Inbox("any", dialect, table).ddl(), table)


def _first_table(metadata: MetaData, dialect: str, ddl: Callable[[str], Sequence[str]], name: str) -> Table:
    """Adds the tables for the outbox or inbox of a name, and what is executed once they are created."""
    if dialect not in SQLALCHEMY_NAMES:
        raise ConfigError(
            f"the dialect '{dialect}' has no tables for SQLAlchemy; there are {', '.join(SQLALCHEMY_NAMES)}"
        )
    database = registry.load(SQLALCHEMY_NAMES[dialect])()
    added = _Reader(metadata, database, ddl(name)).tables

    def finish(_: object, connection: Any, tables: Sequence[Table] = (), **__: object) -> None:
        spellings = _SPELLINGS.get(database.name, (database.name,))
        if connection.dialect.name not in spellings or set(added).isdisjoint(tables or ()):
            return
        for statement in _Reader(MetaData(), database, ddl(translated(connection, name))).afterwards:
            done: Any = DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
            with suppress(IntegrityError), getattr(connection, "begin_nested", nullcontext)():
                connection.execute(done)  # what was noted before stays

    event.listen(metadata, "after_create", finish)
    return added[0]


def outbox_record(
    base: type[DeclarativeBase], dialect: str = "postgres", *, bounds: Bounds | None = None, **options: Any
) -> type[Any]:
    """Maps a class to an outbox, so that ``session.add(OutboxRecord(Record(…)))`` stashes a record.

    The ids of one session's records rise in the order in which they were added. Each record is checked, and
    gets the context of a trace, as with :class:`outbox_api.Stasher`; in autocommit the flush raises
    ``ValueError``.

    Args:
        base: The application's declarative base; see :func:`outbox_table` for what its metadata gets.
        dialect: As of :func:`outbox_table`, as are the errors raised.
        bounds: As for :class:`outbox_api.Stasher`.
        options: As of :func:`outbox_table`.

    Returns:
        The class; its constructor takes a :class:`outbox_api.Record`, and raises ``RecordError``.
    """
    table = outbox_table(base.metadata, dialect, **options)
    binary = isinstance(table.c.kafka_value.type, types.LargeBinary)
    insertion = Insertion(table.fullname, dialect, {}, bytes_values=binary, bounds=bounds)

    def columns_of(self: Any, record: Record) -> None:
        [row] = insertion.rows((record,))
        for column, value in row.items():
            # SQLAlchemy writes JSON itself.
            of_json = isinstance(table.c[column].type, types.JSON)
            setattr(self, column, json.loads(value) if of_json and isinstance(value, str) else value)

    name = "OutboxRecord" if table.key == "outbox" else f"OutboxRecord_{table.key}"
    made = type(name, (Stashable, base), {"__table__": table, "__init__": columns_of})
    event.listen(made, "before_insert", lambda _, connection, __: require_joint(connection))
    return made


class _Reader:
    """Reads the DDL of one outbox.

    Args:
        metadata: Gets the tables. Those beside an outbox may be there: outboxes of a schema share them.
        database: SQLAlchemy's dialect.
        ddl: The statements.

    Attributes:
        tables: The tables in the order of the statements.
        afterwards: What is executed once all are created.
    """

    def __init__(self, metadata: MetaData, database: Any, ddl: Sequence[str]) -> None:
        self.tables: list[Table] = []
        self.afterwards: list[str] = []
        self._metadata = metadata
        self._database = database
        self._there = frozenset(metadata.tables)
        for statement in ddl:
            self._read(statement)

    def _read(self, statement: str) -> None:
        if table := _TABLE.search(statement):
            self._add_table(*table.groups())
        elif index := _INDEX.match(statement):
            self._add_index(*index.groups())
        else:
            self.afterwards.append(statement)

    def _add_index(self, name: str, columns: str, condition: str | None) -> None:
        table = self.tables[-1]
        if table.key not in self._there:
            where: dict[str, Any] = {f"{self._database.name}_where": text(condition)} if condition else {}
            Index(self._name(name), *(table.c[self._name(each)] for each in columns.split(", ")), **where)

    def _add_table(self, written: str, body: str, tail: str) -> None:
        lines = [line.strip().removesuffix(",") for line in body.split("\n")]
        key = [name for line in lines if (found := _KEY.fullmatch(line)) for name in found[1].split(", ")]
        checks = [CheckConstraint(found[1]) for line in lines if (found := _CHECK.fullmatch(line))]
        columns = [self._column(line, key) for line in lines if not line.startswith(("PRIMARY KEY", "CHECK"))]
        options, more = self._options(written, tail)
        if "AUTOINCREMENT" in body:
            options["sqlite_autoincrement"] = True
        name, *schema = map(self._name, reversed(re.findall(_PART, written)))
        there = self._metadata.tables.get(".".join([*schema, name])) if self.tables else None
        if there is not None:
            self.tables.append(there)
            return
        self.tables.append(
            Table(name, self._metadata, *columns, *checks, schema=schema[0] if schema else None, **options)
        )
        if more:
            self.afterwards.append(more)

    def _column(self, line: str, key: list[str]) -> Column[Any]:
        found = _COLUMN.fullmatch(line)
        if found is None:  # a test of each dialect sees to it
            raise ConfigError(f"the column is written in an unknown way: {line}")
        name, written, rest = found[1], found[2], found[3] or ""
        default = _DEFAULT.search(rest) if "GENERATED" not in rest else None
        expression = default[1] if default else ""
        if self._database.name == "postgresql" and expression.startswith("("):
            expression = expression[1:-1]  # as its catalogue has it
        primary = name in key or "PRIMARY KEY" in rest
        return Column(
            self._name(name),
            self._type(written),
            *([Identity(cache=1000, oracle_on_null=True, oracle_order=True)] if "GENERATED" in rest else []),
            primary_key=primary,
            nullable=not primary and "NOT NULL" not in rest,
            server_default=text(expression) if expression else None,
        )

    def _type(self, written: str) -> TypeEngine[Any]:
        """Returns the type that SQLAlchemy writes in the same way."""
        if written == "BIGSERIAL":
            return types.BigInteger()
        if written.endswith("[]"):
            return types.ARRAY(self._type(written[:-2]))
        found = _TYPE.fullmatch(written)
        if found is None:
            return Written(written)
        name, size, charset, collation, zone = found.groups()
        kinds: dict[str, Any] = {each.upper(): kind for each, kind in self._database.ischema_names.items()}
        kind: Any = kinds.get(f"{name}{zone or ''}") or kinds.get(name) or getattr(types, name, Written)
        number = int(size) if size and size.isdecimal() else size
        for arguments in (
            {},
            {"length": number, "collation": collation},
            {"length": number, "charset": charset, "collation": collation},
            {"length": number},
            {"precision": number},
            {"fsp": number},
            {"timezone": True},
        ):
            with suppress(TypeError, CompileError):
                made: TypeEngine[Any] = kind(**{name: each for name, each in arguments.items() if each})
                if made.compile(dialect=self._database).upper() == written.upper():
                    return made
        return Written(written)

    def _options(self, name: str, tail: str) -> tuple[dict[str, Any], str]:
        """Returns what follows the columns: options of the table, or else a statement."""
        tail = tail.strip("; \n").removesuffix("\nEND")
        if self._database.name == "mysql":
            return _mysql_options(tail), ""
        if not tail.startswith("WITH"):
            return {}, tail if tail.startswith("ALTER") else ""
        settings = dict(_SETTING.findall(tail))
        if "with" in dict(self._database.construct_arguments or ()).get(Table, ()):
            return {"postgresql_with": settings}, ""
        return {}, f"ALTER TABLE {name} SET {tail.removeprefix('WITH ')}"  # SQLAlchemy 2.0

    def _name(self, written: str) -> str:
        """Returns a name as SQLAlchemy has it: in lower case where the database folds to upper case."""
        name = written.strip(_QUOTES)
        return name.lower() if self._database.requires_name_normalize and name.isupper() else name


def _mysql_options(tail: str) -> dict[str, Any]:
    return {
        f"{name}_{option.removeprefix('DEFAULT ').lower().replace(' ', '_')}": value
        for name in _SPELLINGS["mysql"]
        for option, value in _MYSQL_OPTION.findall(tail)
    }
