"""What ``outbox check`` reports about an Oracle database and the connection to it, except the columns."""
# ruff: noqa: S608 - names come quoted from the idiom

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outbox_api import DriverError, Finding, Level
from outbox_api.portable import Session, TableName
from outbox_api.portable.check import no_index_on_id
from outbox_api.tls import Protection, transport_finding

from outbox_oracle.idiom import OWNER
from outbox_oracle.options import OracleOptions

PROTOCOL = "SELECT SYS_CONTEXT('USERENV', 'NETWORK_PROTOCOL') FROM SYS.dual"
_CURE = (
    "connect by tcps: oracle://user@host:2484/service?ssl=true in dataSource; an authority that the system "
    "does not know comes from walletLocation"
)


def transport(session: Session, options: OracleOptions) -> Sequence[Finding]:
    """Judges the addresses that the data source leads to, and the protocol of this connection."""
    import oracledb  # noqa: PLC0415 - loads the driver only when it is needed

    parameters = oracledb.ConnectParams(config_dir=options.config_dir or None)
    parameters.parse_connect_string(options.source.dsn)
    rows = session.query("look at the protocol", PROTOCOL)
    used = {str(protocol).lower() for (protocol,) in rows if protocol} | set(_listed(parameters.protocol))
    if used != {"tcps"}:
        protection, setting = Protection.NONE, f"the protocol is {' or '.join(sorted(used))}"
    elif all(_listed(parameters.ssl_server_dn_match)):
        protection, setting = Protection.VERIFIED, ""
    else:
        protection, setting = Protection.AUTHORITY, "ssl_server_dn_match is off"
    return transport_finding(_listed(parameters.host), protection, setting, _CURE)


def _listed(value: object) -> list[str]:
    """Returns what the driver gives as a list if there are several addresses."""
    return list(value) if isinstance(value, list) else [value]  # type: ignore[list-item]  # text, or a switch


OLDEST = (12, 1)

CHARACTER_SET = "SELECT value FROM SYS.nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
DATABASE = "SELECT open_mode, protection_mode, log_mode FROM SYS.v_$database"
IDS = (
    "SELECT identity_options FROM SYS.all_tab_identity_cols"
    f" WHERE owner = {OWNER} AND table_name = {{wanted}} AND column_name = 'ID'"
)
INDEXED = (
    "SELECT COUNT(*) FROM SYS.all_ind_columns"
    f" WHERE table_owner = {OWNER} AND table_name = {{wanted}} AND column_name = 'ID' AND column_position = 1"
)


def findings(session: Session, options: OracleOptions) -> Iterator[Finding]:
    """Checks version, character set, durability, index and ids."""
    yield _version(session)
    yield from transport(session, options)
    yield _character_set(session)
    yield Finding(Level.OK, "session", "no autocommit, reads committed; commits wait for the redo")
    yield _database(session)
    yield from _ids(session, options.outbox)


def _version(session: Session) -> Finding:
    version = str(session.connection.version)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return Finding(Level.ERROR, "version", f"Oracle {version}", "use Oracle 12.1 or newer")
    return Finding(Level.OK, "version", f"Oracle {version}")


def _character_set(session: Session) -> Finding:
    name = str(session.query("read the character set", CHARACTER_SET)[0][0])
    if name in ("AL32UTF8", "UTF8"):
        return Finding(Level.OK, "character set", name)
    cure = "keep to its characters, or use a database with AL32UTF8"
    return Finding(Level.WARNING, "character set", f"{name} does not hold every character", cure)


def _database(session: Session) -> Finding:
    try:
        rows = session.query("look at the database", DATABASE)
    except DriverError:
        return Finding(Level.OK, "durability", "commits wait for the redo; V$DATABASE is not for this user")
    mode, protection, logging = map(str, rows[0])
    if mode != "READ WRITE":
        cure = "connect to the primary, through a service that moves with it"
        return Finding(Level.ERROR, "durability", f"the database is open {mode}", cure)
    if logging != "ARCHIVELOG":
        cure = "run it in ARCHIVELOG mode: records of a database that is restored are published again"
        return Finding(Level.WARNING, "durability", f"the database runs in {logging} mode", cure)
    return Finding(Level.OK, "durability", f"commits wait for the redo; standbys: {protection.lower()}")


def _ids(session: Session, outbox: TableName) -> Iterator[Finding]:
    place = session.idiom.place(outbox)
    try:
        if not session.query("look at the indexes", INDEXED, **place)[0][0]:
            yield no_index_on_id()
        rows = session.query("look at the ids", IDS, **place)
    except DriverError as error:
        yield Finding(Level.WARNING, "ids", str(error), "look at the sequence of id yourself: it needs ORDER")
        return
    if rows and "ORDER_FLAG: Y" in str(rows[0][0]):
        yield Finding(Level.OK, "ids", "in order, on every instance of a cluster")
    elif rows:
        cure = "ALTER TABLE … MODIFY (id GENERATED BY DEFAULT ON NULL AS IDENTITY (ORDER))"
        yield Finding(Level.WARNING, "ids", "in a cluster a later row may get a lower id: NOORDER", cure)
