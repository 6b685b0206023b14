"""What ``outbox check`` says of every portable dialect, and findings that several dialects report alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from outbox_sdk.errors import DriverError
from outbox_sdk.finding import Finding, Level
from outbox_sdk.portable.check_origin import origin_findings
from outbox_sdk.portable.columns import (
    ADDED_FENCE_COLUMNS,
    DEAD_LETTER_COLUMNS,
    EXTRAS,
    FENCE_COLUMNS,
    OUTBOX_COLUMNS,
)
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session


class Checked(Protocol):
    """The parts of a portable dialect that a check asks; see :class:`outbox_sdk.portable.PortableDialect`."""

    options: Any

    @property
    def idiom(self) -> Idiom: ...  # noqa: D102 - as above
    @property
    def address(self) -> str: ...  # noqa: D102 - as above
    def session(self) -> Session: ...  # noqa: D102 - as above
    def create_statements(self) -> Mapping[TableName, Sequence[str]]: ...  # noqa: D102 - as above
    def upgrades(self, session: Session) -> Sequence[str]: ...  # noqa: D102 - as above
    def findings(self, session: Session) -> Iterator[Finding]: ...  # noqa: D102 - as above
    def intake(self, session: Session, *, extras: bool) -> object: ...  # noqa: D102 - as above


def check(dialect: Checked) -> list[Finding]:
    """Connects and looks at everything; never raises. The work behind ``PortableDialect.check``."""
    try:
        session = dialect.session()
    except DriverError as error:
        cure = "see that the server runs and accepts this user" if error.retryable else "see the message"
        return [Finding(Level.ERROR, "connection", str(error), cure)]
    findings = [Finding(Level.OK, "connection", f"connected to {dialect.address}")]
    try:
        findings += dialect.findings(session)
        findings += _tables(dialect, session)
        findings += _upgrades(dialect.upgrades(session))
        findings += _origin(dialect, session)
        if dialect.options.intake:
            findings.append(_intake(dialect, session))
    except DriverError as error:
        findings.append(Finding(Level.ERROR, "connection", str(error), "see the message"))
    finally:
        session.close()
    return findings


def missing_columns(table: TableName, wanted: Collection[str], found: Collection[str]) -> list[str]:
    """Returns a sentence that names the wanted columns that were not found; nothing where all were."""
    missing = sorted(set(wanted).difference(found))
    if not missing:
        return []
    return [f"table '{table}' lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"]


def privileges(missing: Sequence[str]) -> Finding:
    """Judges the privileges that the user lacks, each written as ``UPDATE ON table``."""
    if missing:
        cure = "; ".join(f"GRANT {privilege} TO this user" for privilege in missing)
        return Finding(Level.ERROR, "privileges", f"missing: {', '.join(missing)}", cure)
    return Finding(Level.OK, "privileges", "this user may read and change the tables that are there")


def no_index_on_id() -> Finding:
    """Returns the finding for an outbox without an index that begins with ``id``."""
    cure = "make id the primary key, or index it; without, every mark reads the whole table"
    return Finding(Level.WARNING, "index", "no index starts with id", cure)


def _tables(dialect: Checked, session: Session) -> Iterator[Finding]:
    wanted = (OUTBOX_COLUMNS, FENCE_COLUMNS, DEAD_LETTER_COLUMNS)
    subjects = ("outbox table", "fence", "dead letters")
    for table, columns, subject in zip(dialect.create_statements(), wanted, subjects, strict=True):
        found = session.columns(dialect.idiom.quote_table(table))
        if found is None:
            level = Level.ERROR if subject == "outbox table" else Level.WARNING
            yield Finding(level, subject, f"there is no table '{table}'", "run 'outbox init'")
        elif faults := missing_columns(table, set(columns).difference(ADDED_FENCE_COLUMNS), found):
            cure = "add the columns; 'outbox init --dry-run' shows their types"
            yield Finding(Level.ERROR, subject, "; ".join(faults), cure)
        else:
            yield Finding(Level.OK, subject, f"'{table}' has its columns")


def _upgrades(statements: Sequence[str]) -> Iterator[Finding]:
    if statements:
        seen = "fence or dead letters were made by an earlier version"
        cure = f"the next 'outbox run' changes them, or let somebody run: {'; '.join(statements)}"
        yield Finding(Level.WARNING, "upgrade", seen, cure)


def _origin(dialect: Checked, session: Session) -> Iterator[Finding]:
    outbox, origin = dialect.options.outbox, dialect.options.origin
    found = session.columns(dialect.idiom.quote_table(outbox)) if origin else None
    if found is not None:
        yield from origin_findings(session, outbox, origin, found)


def _intake(dialect: Checked, session: Session) -> Finding:
    columns = session.columns(dialect.idiom.quote_table(dialect.options.outbox)) or ()
    try:
        dialect.intake(session, extras=set(EXTRAS) <= set(columns))
    except DriverError as error:
        return Finding(Level.ERROR, "intake", str(error), "see the message")
    return Finding(Level.OK, "intake", f"rows of table {dialect.options.intake.table} can be taken in")
