"""Creates the tables of an outbox, says what is wrong with those that are there, and adds what they lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from outbox_api.base.errors import AccessDenied, DriverError
from outbox_api.portable.database import PortableDatabase
from outbox_api.portable.keeping import holds_bytes
from outbox_api.portable.notes import forget_identity, note_schema, read_schema, schema_query
from outbox_api.portable.origin_columns import OriginColumns
from outbox_api.portable.partitions import Divided, divided_kept, divided_outbox
from outbox_api.portable.session import Session, TableMissing
from outbox_api.portable.sources import OUTBOX_COLUMNS
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import HARVESTED, NEEDS, OPERATED, Tables
from outbox_api.seams.affinity import ColumnIs, Origin
from outbox_api.seams.schema import SCHEMA, refusal

if TYPE_CHECKING:
    from outbox_api.portable.days import Days

Together = Sequence[str]
"""The statements of one transaction."""


def migrations(
    database: PortableDatabase, session: Session, command: str = "outbox migrate"
) -> list[Together]:
    """Returns the statements that bring existing tables up to ``SCHEMA``, of which the last notes it."""
    names = database.names(session)
    query = schema_query(session.idiom, names.notes)
    rows = session.query("read the version", query, name=names.name)
    version = rows[0][0] if rows else None
    if version is not None and int(version) > SCHEMA:
        return []  # they have all that this version needs, and more
    together: list[Together] = [[statement] for statement in database.alterations(session)]
    if version is None or int(version) < SCHEMA:
        name = session.idiom.literal(names.name)
        together.append([note_schema(session.idiom, names.notes, name, command, anew=not rows)])
    return together


def due(database: PortableDatabase, session: Session) -> list[Together]:
    """Returns what ``outbox migrate`` executes: :func:`migrations`, and a table that is wanted by now."""
    names = database.names(session)
    wanted = [
        statements
        for table, statements in _as_found(database, session, names).kept_tables(names).items()
        if session.columns(session.idiom.quote_table(table)) is None
    ]
    return [*wanted, *migrations(database, session)]


def _as_found(database: PortableDatabase, session: Session, names: Tables) -> PortableDatabase:
    """Returns the database with values of the type that an existing outbox has: they are kept as they are."""
    options = database.options
    found = holds_bytes(session, database.idiom, names.outbox) if options.keep else None
    if found in {None, options.binary}:
        return database
    return type(database)(replace(options, value_type=options.value_types[bool(found)]))


def migrate(database: PortableDatabase, session: Session) -> list[str]:
    """Executes what is :func:`due` without a long wait for any lock, and returns what it executed."""
    if brief := session.idiom.brief_locks:
        with session.transaction("limit waits for locks", reads=True):
            session.execute_ddl(brief)
    done = execute(session, lambda: due(database, session), "outbox migrate")
    if database.options.keep:
        _days(session, divided_kept(database.names(session).kept)).prepare()
    return done


def execute(session: Session, outdated: Callable[[], Sequence[Together]], command: str) -> list[str]:
    """Executes statements that change existing tables; returns those that this process has executed.

    Several processes may do so at once: ``outdated`` returns none once any of them has executed them.

    Raises:
        DriverError: A lock was not to be had (retryable). Or the user may not; the message then contains the
            statements for somebody who may.
    """
    done: list[str] = []
    for together in outdated():
        try:
            with session.transaction("change a table of an earlier version"):
                for statement in together:
                    session.execute_ddl(statement)
        except DriverError as error:
            left = outdated()
            if together not in left:
                continue  # another process was first
            if error.retryable:
                raise DriverError(f"{error}; run '{command}' again", retryable=True) from error
            kind = AccessDenied if isinstance(error, AccessDenied) else DriverError
            texts = "; ".join(each for transaction in left for each in transaction)
            message = f"{error}; let somebody who may run this: {texts}"
            raise kind(message, retryable=False) from error
        done += together
    return done


class Ready(NamedTuple):
    """An outbox that this version can work with."""

    tables: Tables
    columns: Collection[str]


def require(
    database: PortableDatabase, session: Session, eligible: Sequence[ColumnIs] = (), more: str = ""
) -> Ready:
    """Makes sure that the tables exist, have their columns, and are of no version that is too new.

    ``more`` is a table beside those that every harvester needs, by its name in ``Tables``.

    Raises:
        DriverError: They are not as they must be; the message says what to run.
    """
    options = database.options
    names = database.names(session)
    found = require_tables(database, session, names, more)
    require_version(database, session, names)
    faults = list[str]()
    for name, there in found.items():
        lacks = missing_columns(getattr(names, name), NEEDS[name].columns, there)
        faults += [f"{each}; {NEEDS[name].instead}" for each in lacks]
    outbox = found["outbox"]
    if absent := missing_columns(options.outbox, _asked(eligible, options.origin), outbox):
        faults += [f"{absent[0]}; run 'outbox init', which adds what the affinity needs"]
    elif eligible and (origin := options.origin):
        columns = OriginColumns(database.idiom, options.outbox, origin)
        if origin.is_of_another(default := columns.default(session)):
            faults += ["; ".join(columns.wrong_default(default))]
    if faults:
        message = f"outbox {options.outbox} in {database.address} cannot be used: {'; '.join(faults)}"
        raise DriverError(message, retryable=False)
    return Ready(names, outbox)


def require_tables(
    database: PortableDatabase, session: Session, tables: Tables, more: str = ""
) -> Mapping[str, Collection[str]]:
    """Makes sure that tables exist; returns their columns, in lower case, by their names in ``Tables``."""
    found = dict[str, Collection[str]]()
    for name in (*HARVESTED, *([more] if more else [])):
        table: TableName = getattr(tables, name)
        columns = session.columns(database.idiom.quote_table(table))
        if columns is None:
            cure = f"run 'outbox init', or {NEEDS[name].instead}"
            if name == "kept":
                cure = (
                    "run 'outbox init'"
                    if database.options.keep
                    else "set the option 'keep', and run 'outbox init'"
                )
            message = f"there is no {NEEDS[name].subject} '{table}' in {database.address}; {cure}"
            raise TableMissing(message, retryable=False)
        found[name] = columns
    return found


def require_version(database: PortableDatabase, session: Session, names: Tables) -> None:
    """Makes sure that existing tables are not too new."""
    if reason := refusal(read_schema(session, names)):
        message = f"outbox {names.outbox} in {database.address} cannot be used: {reason}"
        raise DriverError(message, retryable=False)


def missing_columns(table: TableName, wanted: Collection[str], found: Collection[str]) -> list[str]:
    """Returns a sentence that names the wanted columns that were not found; nothing where all were."""
    missing = sorted(set(wanted).difference(found))
    if not missing:
        return []
    return [f"table '{table}' lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"]


def _asked(eligible: Sequence[ColumnIs], origin: Origin | None) -> set[str]:
    """Returns the columns that an affinity needs beside those of every outbox, in lower case."""
    aged = {each.since.lower() for each in eligible if each.older_than > 0}
    telling = {name.lower() for name in (origin.column, origin.arrival) if name} if origin else set()
    return telling | {each.column.lower() for each in eligible} | aged - set(OUTBOX_COLUMNS)


_COMMAND = "outbox init"


def first_note(database: PortableDatabase) -> str:
    """Returns the statement that notes the version of tables that have just been created."""
    options = database.options
    name = database.idiom.known_as(options.outbox)
    return note_schema(database.idiom, options.tables.notes, name, _COMMAND, anew=True)


def create(database: PortableDatabase, session: Session) -> list[str]:
    """Creates what does not exist, adds what an origin needs, and notes the version of the tables.

    Returns the names of the tables created. An outbox that is made anew is another one: its ids begin again,
    so it gets another identity.

    The version is noted once there is nothing to migrate.

    Raises:
        DriverError: The user may not; the message contains the statements for somebody who may. Or there are
            tables that are too new.
    """
    names = database.names(session)
    # The table of kept records is the last, and need not be wanted.
    statements = _as_found(database, session, names).tables(names)
    tables = zip(database.options.tables, statements.items(), strict=False)
    with suppress(AccessDenied):  # what follows says what to run
        if session.columns(session.idiom.quote_table(names.notes)) is not None:
            require_version(database, session, names)
    operated = {getattr(names, each) for each in OPERATED}
    created = [
        configured.unquoted
        for configured, (table, ddl) in tables
        if _create_table(session, table, ddl, optional=table in operated)
    ]
    if database.options.outbox.unquoted in created:
        name = database.names(session).name
        with session.transaction("forget the identity of a former table"):
            session.execute(forget_identity(session.idiom, names.notes), name=name)
    _prepare_days(database, session, names)
    execute(session, lambda: database.additions(session), _COMMAND)
    if not database.alterations(session):
        execute(session, lambda: migrations(database, session, _COMMAND), _COMMAND)
    return created


def _prepare_days(database: PortableDatabase, session: Session, names: Tables) -> None:
    """Makes the partitions that an outbox which has some lacks, and those of kept records.

    Raises:
        DriverError: There is to be one for each day, and the outbox has none.
    """
    days = _days(session, divided_outbox(names.outbox))
    if days.found() is not None:
        days.prepare()
    elif database.options.by_day:
        message = (
            f"outbox {names.outbox} in {database.address} exists, and has no partition for each day; "
            "its rows are not moved: make an outbox of another name with partitions, "
            "and use it once this one is empty"
        )
        raise DriverError(message, retryable=False)
    if database.options.keep:
        _days(session, divided_kept(names.kept)).prepare()


def _days(session: Session, divided: Divided) -> Days:
    from outbox_api.portable.days import Days  # noqa: PLC0415 - who looks at an outbox makes no partition

    return Days(session, divided)


def _is_there(session: Session, table: TableName, *, optional: bool) -> bool:
    """Returns whether a table exists; one that harvesters need no right to, they need not see."""
    try:
        return session.columns(session.idiom.quote_table(table)) is not None
    except AccessDenied:
        if not optional:
            raise
        return True


def _create_table(session: Session, table: TableName, statements: Sequence[str], *, optional: bool) -> bool:
    """Creates a table that does not exist; returns whether it did."""
    if _is_there(session, table, optional=optional):
        return False
    try:
        with session.transaction(f"create table {table}"):
            for statement in statements:
                session.execute_ddl(statement)
    except AccessDenied as error:
        ddl = "; ".join(statements)
        raise AccessDenied(f"{error}; let somebody who may run this: {ddl}") from error
    except DriverError:
        if session.columns(session.idiom.quote_table(table)) is not None:
            return False  # another process was first
        raise
    return True
