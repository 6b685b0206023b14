"""What ``outbox check`` reports about PostgreSQL: one finding for each thing that it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from outbox_api import DriverError, Finding, Intake, Level, Origin
from outbox_api.portable import PortableDialect, TableName
from outbox_api.portable.check import WATCHED, connected, version_finding, watchers_finding
from outbox_api.portable.days import Days, outbox_findings
from outbox_api.portable.given_ids import ids_behind_finding
from outbox_api.portable.intake_check import findings
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.retention import retention_findings
from outbox_api.portable.session import TableMissing
from outbox_api.portable.sources import KEPT_COLUMNS
from outbox_api.portable.tables import NEEDS
from outbox_api.support.tls import Protection, transport_finding

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.check_origin import check_origin
from outbox_postgres.check_queries import SERVER_PROBES, TABLE_PROBES, Probe
from outbox_postgres.inspector import BESIDE, Inspector
from outbox_postgres.intake import PostgresIntake, inserted
from outbox_postgres.keeping import positions_behind
from outbox_postgres.layout import Layout, find_layout
from outbox_postgres.options import PostgresOptions, quoted
from outbox_postgres.search_path import Connection
from outbox_postgres.session import Session

OLDEST_SERVER = 120000
_CLOSED = "SELECT 1 FROM pg_namespace WHERE nspname::text = $1 AND NOT has_schema_privilege(oid, 'USAGE')"
"""Whether a schema is one whose tables this user may not see."""


def check(dialect: PortableDialect, connect: Callable[[], Session]) -> Sequence[Finding]:
    """Connects and looks at everything; never raises. The work behind ``PostgresDialect.check``.

    Args:
        dialect: Whose outbox.
        connect: Connects without the settings of sessions, which would hide those of the server.
    """
    findings: list[Finding] = []
    try:
        address = dialect.address
    except DriverError as error:
        return [Finding(Level.ERROR, "data source", str(error), "correct dataSource")]
    try:
        with closing(connect()) as session, session.translated("look at the outbox"):
            findings.append(connected(session, address))
            findings += _transport(session.connection)
            findings += _server(session.connection)
            findings += _pooler(session.connection, connect)
            findings += _outbox(session, dialect)
    except DriverError as error:
        cure = "see that the server runs and accepts this user" if error.retryable else "correct dataSource"
        findings.append(Finding(Level.ERROR, "connection", str(error), cure))
    return findings


def _server(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    version = connection.info.server_version
    name = connection.info.parameter_status("server_version") or str(version)
    if version < OLDEST_SERVER:
        yield Finding(Level.ERROR, "server version", f"PostgreSQL {name}", "use PostgreSQL 12 or newer")
    else:
        yield Finding(Level.OK, "server version", f"PostgreSQL {name}")
    for probe in SERVER_PROBES:
        yield from _run(connection, probe, ())


def _pooler(connection: Connection, connect: Callable[[], Session]) -> Iterator[Finding]:
    # A pooler reports process ids of its own. A pooler in transaction mode cannot give this connection its
    # previous server connection while another client has a transaction open there.
    first = _backend(connection)
    pooled = first != connection.info.backend_pid
    with closing(connect()) as other:
        other.connection.execute("BEGIN")
        switches = _backend(other.connection) == first or _backend(connection) != first
    if switches:
        yield Finding(
            Level.ERROR,
            "pooler",
            "a pooler gives each transaction another server connection, so that settings and prepared "
            "statements get lost",
            "connect to the server itself, or through a pooler in session mode",
        )
    elif pooled:
        yield Finding(
            Level.WARNING,
            "pooler",
            "a pooler or proxy stands before the server; a lost server may show late",
            "connect to the server itself where you can",
        )
    else:
        yield Finding(Level.OK, "pooler", "none in the way")


def _backend(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0


def _outbox(session: Session, dialect: PortableDialect) -> Iterator[Finding]:
    connection: Connection = session.connection
    options: PostgresOptions = dialect.options
    if connection.execute(_CLOSED, (options.outbox.schema,)).fetchone():
        user, schema = connection.info.user, options.outbox.schema
        seen = f"user '{user}' lacks the privilege USAGE on the schema {quoted(schema)}"
        yield Finding(
            Level.ERROR, "outbox table", seen, f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(user)}"
        )
        return
    catalogue = Catalogue(connection)
    try:
        layout = find_layout(catalogue, options)
    except DriverError as error:
        yield Finding(Level.ERROR, "outbox table", str(error), _cure(error))
        return
    connection.watches = True  # only now: that the server can write is part of the layout
    yield from _account(catalogue, layout)
    inspector = Inspector(catalogue, options)
    faults = list(inspector.faults(layout))
    for fault in faults:
        yield Finding(Level.ERROR, "outbox table", fault.message, fault.cure)
    for name in layout.tables._fields[1:-1]:
        yield from (_auxiliary if name in BESIDE else _optional)(inspector, layout, name)
    yield from _kept(inspector, session, layout)
    with suppress(DriverError):  # what cannot be read is reported already
        yield version_finding(dialect, session)
    yield from _schemas(connection, layout, options.outbox)
    if not faults:
        yield Finding(Level.OK, "outbox table", f"{layout.outbox} has the columns and privileges it needs")
    elif not all(fault.refusal for fault in faults) or catalogue.missing_privileges(layout.oid, ["SELECT"]):
        return
    yield from _behind(catalogue, session, layout, options.origin)
    yield _ids(catalogue, layout, options)
    yield from outbox_findings(Days(session, divided_outbox(layout.outbox)))
    if options.origin:
        yield from check_origin(session, catalogue, layout, options.origin)
    for intake in options.intakes:
        yield from _intake(catalogue, session, layout, intake)
    for probe in TABLE_PROBES:
        yield from _run(connection, probe, (layout.oid,))


def _cure(error: DriverError) -> str:
    if isinstance(error, TableMissing):
        return "run 'outbox init'"
    return "connect to the primary" if error.retryable else "see the message"


def _account(catalogue: Catalogue, layout: Layout) -> Iterator[Finding]:
    if catalogue.missing_privileges(layout.oid, WATCHED) == WATCHED:
        yield watchers_finding(f"user '{layout.user}'")


def _auxiliary(inspector: Inspector, layout: Layout, name: str) -> Iterator[Finding]:
    need, table = NEEDS[name], getattr(layout.tables, name)
    faults = list(inspector.auxiliary_faults(layout, name, need.privileges))
    for fault in faults:
        yield Finding(Level.ERROR, need.subject, fault.message, fault.cure)
    if not faults:
        yield Finding(Level.OK, need.subject, f"{table} has the columns and privileges it needs")


def _kept(inspector: Inspector, session: Session, layout: Layout) -> Iterator[Finding]:
    """Looks at the table of kept records, which is the last of the tables and need not be wanted."""
    if not layout.keep:
        return
    found, catalogue = [*_auxiliary(inspector, layout, "kept")], inspector.catalogue
    yield from found
    kept = catalogue.find(layout.tables.kept)
    if kept and all(each.level is Level.OK for each in found):
        for right in catalogue.missing_to_insert(kept.oid, list(KEPT_COLUMNS)):
            seen = f"user '{layout.user}' lacks the privilege {right}, so nothing can be kept"
            yield Finding(Level.ERROR, NEEDS["kept"].subject, seen, f"GRANT {right} TO {quoted(layout.user)}")
        if behind := positions_behind(session, layout):
            yield behind
        yield from retention_findings(session, layout.tables, layout.keep)


def _optional(inspector: Inspector, layout: Layout, name: str) -> Iterator[Finding]:
    """Looks whether there is a table that not every user of an outbox needs, nor a right to it."""
    subject, table = NEEDS[name].subject, getattr(layout.tables, name)
    try:
        faults = list(inspector.auxiliary_faults(layout, name, ()))
    except psycopg.errors.InsufficientPrivilege:  # for a schema of its own
        yield Finding(Level.OK, subject, f"this user may not look for {table}, and needs not to harvest")
        return
    for fault in faults:
        yield Finding(Level.WARNING, subject, fault.message, fault.cure)
    if not faults:
        yield Finding(Level.OK, subject, f"{table} has the columns it needs")


def _behind(
    catalogue: Catalogue, session: Session, layout: Layout, origin: Origin | None
) -> Iterator[Finding]:
    if not origin and (seen := catalogue.ids_behind(session, layout.outbox, layout.oid, None)):
        yield ids_behind_finding(seen, catalogue.last_id_cure(layout.oid))


def _ids(catalogue: Catalogue, layout: Layout, options: PostgresOptions) -> Finding:
    if layout.sequence is None and catalogue.partitioned(layout.oid):
        if catalogue.counter(layout.oid):
            seen = "by a sequence; every look starts at the head of the table, as it is partitioned"
            return Finding(Level.OK, "record ids", seen)
        return Finding(
            Level.ERROR,
            "record ids",
            "no sequence gives them out, and no index says that one is there once, as there are partitions: "
            "a purge of an id would delete every record that has it",
            f"let a sequence give out {layout.outbox}.id",
        )
    if layout.sequence is None or (layout.replicated and not options.origin):
        return Finding(
            Level.WARNING,
            "record ids",
            "not all ids come one by one from a sequence of the table's own without cache, so that they may "
            "not follow the order of writing and every mark and selection reads from the head of the table",
            f"let a sequence that the column owns, with INCREMENT 1 and CACHE 1, give out {layout.outbox}.id",
        )
    if not options.skip_settled:
        return Finding(Level.OK, "record ids", "every look starts at the head of the table, as configured")
    harvests = not catalogue.missing_privileges(layout.oid, ["DELETE"])
    if harvests and not catalogue.may_read_sequence(layout.sequence):
        return Finding(
            Level.WARNING,
            "record ids",
            f"user '{layout.user}' may not read the sequence of {layout.outbox}.id: a row whose id the "
            "sequence has not given out, far above all others, would delay new ones by seconds",
            f"GRANT SELECT ON SEQUENCE {catalogue.name(layout.sequence)} TO {quoted(layout.user)}",
        )
    return Finding(Level.OK, "record ids", "ids are given out in order by a sequence of the table's own")


def _intake(catalogue: Catalogue, session: Session, layout: Layout, intake: Intake) -> Iterator[Finding]:
    subject = "intake"
    missing = catalogue.missing_to_insert(layout.oid, inserted(layout))
    for right in missing:
        seen = f"user '{layout.user}' lacks the privilege {right}, so no row can be taken in"
        yield Finding(Level.ERROR, subject, seen, f"GRANT {right} TO {quoted(layout.user)}")
    try:
        found = PostgresIntake(session, layout, intake)
    except DriverError as error:
        yield Finding(Level.ERROR, subject, str(error), "see the message")
        return
    if not missing:
        yield from findings(intake, found)


def _run(connection: psycopg.Connection[Any], probe: Probe, parameters: tuple[int, ...]) -> Iterator[Finding]:
    rows = connection.execute(probe.sql, parameters).fetchall()
    for seen, *cure in rows:
        yield Finding(probe.level, probe.subject, seen, (cure and cure[0]) or probe.cure)
    if not rows:
        yield Finding(Level.OK, probe.subject, probe.well)


_KERBEROS = "SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()"
_BY_MODE = {"verify-full": Protection.VERIFIED, "verify-ca": Protection.AUTHORITY}
_TRANSPORT_CURE = (
    "set sslmode=verify-full and sslrootcert=FILE in dataSource, with the certificate of the authority that "
    "signed the server's"
)


def _transport(connection: Connection) -> Sequence[Finding]:
    """Judges the settings as libpq has found them, and what it made of them: some modes give either."""
    settings = {option.keyword.decode(): (option.val or b"").decode() for option in connection.pgconn.info}
    # psycopg tries the hosts one by one, and resolves them before.
    written = connection.parameters.get("hostaddr") or connection.parameters.get("host")
    hosts = (written or settings.get("host") or connection.info.host).split(",")
    mode = settings.get("sslmode", "")
    if not connection.pgconn.ssl_in_use:
        row = connection.execute(_KERBEROS).fetchone()
        protection = Protection.VERIFIED if row and row[0] else Protection.NONE
        server = "" if mode == "disable" else ", and the server offers no TLS: switch ssl on there"
        return transport_finding(hosts, protection, f"sslmode is {mode}{server}", _TRANSPORT_CURE)
    protection = _BY_MODE.get(mode, Protection.ENCRYPTED)
    weaker = ", which takes a connection in clear as well" if mode in ("allow", "prefer") else ""
    return transport_finding(hosts, protection, f"sslmode is {mode}{weaker}", _TRANSPORT_CURE)


# A grant to a role that no other login role is a member of permits nobody anything.
_CREATORS = """
SELECT n.nspname, g.rolname
FROM pg_namespace AS n
CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS acl
LEFT JOIN pg_roles AS g ON g.oid = acl.grantee
WHERE n.nspname::text = ANY ($1::text[]) AND acl.privilege_type = 'CREATE' AND acl.grantee <> n.nspowner
  AND (acl.grantee = 0 OR EXISTS (
      SELECT FROM pg_roles AS r
      WHERE r.rolcanlogin AND NOT r.rolsuper AND r.rolname <> current_user
        AND pg_has_role(r.oid, acl.grantee, 'MEMBER') AND NOT pg_has_role(r.oid, n.nspowner, 'MEMBER')))
ORDER BY n.nspname, g.rolname
"""


def _schemas(connection: Connection, layout: Layout, wanted: TableName) -> Iterator[Finding]:
    """Looks for roles, other than owners and superusers, that could put a table in the place of ours."""
    subject = "schemas"
    schemas = [table.schema for table in layout.tables]
    if not wanted.schema:  # what is in an earlier schema of the search path would be taken for it
        schemas += connection.schemas[: connection.schemas.index(layout.outbox.schema)]
    found = connection.execute(_CREATORS, (schemas,)).fetchall()
    for schema, role in found:
        who, grantee = (f"role '{role}'", quoted(role)) if role else ("every role", "PUBLIC")
        # As one would write it, which matters for the schema that all databases have.
        name = schema if schema == "public" else quoted(schema)
        yield Finding(
            Level.WARNING,
            subject,
            f"{who} may create in schema {schema}: a table in the place of one of ours has triggers, which "
            "run with the harvester's rights",
            f"REVOKE CREATE ON SCHEMA {name} FROM {grantee}",
        )
    if not found:
        yield Finding(Level.OK, subject, "only their owners may create in them")
