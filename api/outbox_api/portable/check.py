"""What ``outbox check`` says of every portable dialect, and findings that several dialects report alike."""
# ruff: noqa: S608 - names come quoted from the idiom

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from outbox_api.base.errors import AccessDenied, DriverError
from outbox_api.base.finding import Finding, Level, shortest
from outbox_api.intake.intake import Intake
from outbox_api.portable.creation import migrations, missing_columns
from outbox_api.portable.database import PortableDatabase
from outbox_api.portable.days import Days, outbox_findings
from outbox_api.portable.given_ids import ids_behind, ids_behind_finding, last_id
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.intake_check import findings as intake_findings
from outbox_api.portable.notes import read_schema
from outbox_api.portable.origin_columns import find_index, origin_findings
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.retention import retention_findings
from outbox_api.portable.session import Session, TableMissing
from outbox_api.portable.sources import quoted
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import HARVESTED, NEEDS, OPERATED, Tables
from outbox_api.seams.schema import SCHEMA, refusal


def check(database: PortableDatabase, *, watches: bool = False) -> list[Finding]:
    """Connects and looks at everything; never raises. The work behind ``PortableDialect.check``.

    Args:
        database: Whose outbox.
        watches: Whether in a session that only looks. In another one the database can tell what is permitted.
    """
    try:
        session = database.session(watches=watches)
    except DriverError as error:
        cure = "see that the server runs and accepts this user" if error.retryable else "see the message"
        return [Finding(Level.ERROR, "connection", str(error), cure)]
    findings: list[Finding] = []
    try:
        findings.append(connected(session, database.address))
        findings += database.findings(session)
        findings += [] if watches else _privileges(database, session)
        findings += _tables(database, session)
        findings += _version(database, session)
        findings += _record_ids(database, session)
        findings += outbox_findings(Days(session, divided_outbox(database.names(session).outbox)))
        findings += _origin(database, session)
        findings += _kept(database, session)
        for intake in database.options.intakes:
            findings += _intake(database, session, intake, tries=not watches)
    except DriverError as error:
        findings.append(Finding(Level.ERROR, "connection", str(error), "see the message"))
    finally:
        session.close()
    return findings


def connected(session: Session, address: str) -> Finding:
    """Says which database was reached, and how long a round trip takes."""
    with session.transaction("measure the way to the database", reads=True):
        seconds = shortest(session.now)
    return Finding(Level.OK, "connection", f"connected to {address}", round_trip=seconds)


WATCHED = ["UPDATE", "DELETE"]
"""What a user lacks on the outbox who only looks at it."""


def watchers_finding(user: str) -> Finding:
    """Says of a user who only looks that the findings are about another one."""
    seen = f"{user} may change no row, as an account that watches: missing rights are those of the harvester"
    return Finding(Level.WARNING, "account", seen, "check with the file of the account that harvests")


_NOTHING = "WHERE 1 = 0"
_CHANGED = {
    "outbox": "leader_id",
    "fence": "token",
    "notes": "version",
    "dead_letters": "status",
    "kept": "lacks",
}


def trials(idiom: Idiom, tables: Tables, more: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yields privilege, table, and a statement that needs the privilege and changes nothing."""
    for name in (*HARVESTED, *more):
        table: TableName = getattr(tables, name)
        written, column = quoted(idiom, table), _CHANGED[name]
        statements = {
            "SELECT": f"SELECT * FROM {written} {_NOTHING}",
            "INSERT": f"INSERT INTO {written} SELECT * FROM {written} {_NOTHING}",
            "UPDATE": f"UPDATE {written} SET {column} = {column} {_NOTHING}",
            "DELETE": f"DELETE FROM {written} {_NOTHING}",
        }
        yield from ((each, idiom.quote_table(table), statements[each]) for each in NEEDS[name].privileges)


def _privileges(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    missing = dict[str, list[str]]()
    more = ["kept"] if database.options.keep else []
    for privilege, table, statement in trials(database.idiom, database.names(session), more):
        if isinstance(_refused(session, statement, {}), AccessDenied):
            missing.setdefault(table, []).append(privilege)
    if missing:
        rights = [f"{', '.join(each)} ON {table}" for table, each in missing.items()]
        cure = "; ".join(f"GRANT {right} TO this user" for right in rights)
        yield Finding(Level.ERROR, "privileges", f"missing: {', '.join(rights)}", cure)
        outbox = database.idiom.quote_table(database.names(session).outbox)
        if missing.get(outbox) == WATCHED:
            yield watchers_finding("this user")
    else:
        yield Finding(Level.OK, "privileges", "this user may read and change the tables that are there")


def _refused(session: Session, statement: str, values: Mapping[str, object]) -> DriverError | None:
    """Returns why a statement, which changes nothing, is refused."""
    try:
        with session.transaction("try what is permitted"):
            session.execute(statement, **values)
            session.connection.rollback()  # some databases fire triggers for no rows, too
    except DriverError as error:
        return error
    return None


def id_index(session: Session, outbox: TableName) -> Iterator[Finding]:
    """Says that no index of an outbox begins with ``id``, if so."""
    if not find_index(session, outbox, ("id",)):
        cure = "make id the primary key, or index it; without, every mark reads the whole table"
        yield Finding(Level.WARNING, "index", "no index starts with id", cure)


_OPTIONAL = {
    "lease": "and needs it for electors only",
    "members": "and needs it for electors only",
    **dict.fromkeys(OPERATED, "and needs not to harvest"),
}
"""Tables that not every user of an outbox may read → when one needs that."""


def _tables(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    tables = database.names(session)
    for name in (*HARVESTED, *_OPTIONAL):
        table, subject = getattr(tables, name), NEEDS[name].subject
        level = Level.WARNING if name in OPERATED else Level.ERROR
        try:
            found = session.columns(database.idiom.quote_table(table))
        except AccessDenied:
            if name not in _OPTIONAL:
                raise
            yield Finding(Level.OK, subject, f"this user may not read '{table}', {_OPTIONAL[name]}")
            continue
        if found is None:
            yield Finding(level, subject, f"there is no table '{table}'", "run 'outbox init'")
        elif faults := missing_columns(table, NEEDS[name].columns, found):
            cure = "add the columns; 'outbox init --dry-run' shows their types"
            yield Finding(level, subject, "; ".join(faults), cure)
        else:
            yield Finding(Level.OK, subject, f"'{table}' has its columns")


def _version(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    tables = database.names(session)
    names = [getattr(tables, name) for name in HARVESTED]
    if any(session.columns(database.idiom.quote_table(table)) is None for table in names):
        return  # which another finding reports
    yield version_finding(database, session)


def version_finding(database: PortableDatabase, session: Session) -> Finding:
    """Judges the version of tables that exist."""
    tables = database.names(session)
    found = read_schema(session, tables)
    subject = "version of the tables"
    if reason := refusal(found):
        return Finding(Level.ERROR, subject, reason, "upgrade outbox")
    if due := [each for together in migrations(database, session) for each in together]:
        seen = f"it is {found.version}" if found else "it is not noted"
        cure = f"run 'outbox migrate', or let somebody run: {'; '.join(due)}"
        return Finding(Level.WARNING, subject, f"{seen}; this outbox makes version {SCHEMA}", cure)
    return Finding(Level.OK, subject, str(SCHEMA))


def _record_ids(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    outbox, origin = database.names(session).outbox, database.options.origin
    table = session.idiom.quote_table(outbox)
    columns = session.columns(table) if session.idiom.last_id else None
    if columns is None or (origin and origin.column.lower() not in columns):
        return  # which another finding reports
    if seen := ids_behind(session, table, partial(last_id, session, outbox), origin):
        yield ids_behind_finding(seen, session.idiom.last_id_cure.format(table=table))


def _origin(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    outbox, origin = database.options.outbox, database.options.origin
    found = session.columns(database.idiom.quote_table(outbox)) if origin else None
    if found is not None:
        yield from origin_findings(session, database.options.tables, origin, found)


def _kept(database: PortableDatabase, session: Session) -> Iterator[Finding]:
    if keep := database.options.keep:
        tables, need = database.names(session), NEEDS["kept"]
        found = session.columns(database.idiom.quote_table(tables.kept))
        if found is None:
            cure = "run 'outbox init' or 'outbox migrate'"
            yield Finding(Level.ERROR, need.subject, f"there is no table '{tables.kept}'", cure)
        elif faults := missing_columns(tables.kept, need.columns, found):
            cure = "add the columns; 'outbox init --dry-run' shows their types"
            yield Finding(Level.ERROR, need.subject, "; ".join(faults), cure)
        else:
            yield from retention_findings(session, tables, keep)


def _intake(database: PortableDatabase, session: Session, of: Intake, *, tries: bool) -> Iterator[Finding]:
    subject = "intake"
    columns = session.columns(database.idiom.quote_table(database.options.outbox)) or ()
    try:
        intake = database.intake(session, of, extras=columns)
    except DriverError as error:
        yield Finding(Level.ERROR, subject, str(error), "see the message")
        return
    refused = False
    for right, statement, values in intake.trials() if tries else ():
        reason = _refused(session, statement, values)
        if reason is None or isinstance(reason, TableMissing):  # which another finding reports
            continue
        refused, seen, cure = True, str(reason), "see the message"
        if isinstance(reason, AccessDenied):
            seen, cure = f"{right} is not granted, so no row can be taken in", f"GRANT {right} TO this user"
        yield Finding(Level.ERROR, subject, seen, cure)
    if not refused:
        yield from intake_findings(of, intake)
