"""What ``outbox check`` reports about a SQL Server, except the columns of the tables."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_sdk import Finding, Level
from outbox_sdk.portable import Session
from outbox_sdk.portable.check import no_index_on_id, privileges

from outbox_sqlserver.options import SqlServerOptions

OLDEST = 13  # 2016
COMPATIBILITY = 130
AZURE = (5, 8, 12)  # engine editions whose versions say nothing

SERVER = (
    "SELECT CAST(SERVERPROPERTY('ProductVersion') AS NVARCHAR(40)),"
    " CAST(SERVERPROPERTY('EngineEdition') AS INT)"
)
DATABASE = (
    "SELECT compatibility_level, is_read_committed_snapshot_on, delayed_durability_desc,"
    " CAST(DATABASEPROPERTYEX(name, 'Updateability') AS NVARCHAR(20))"
    " FROM sys.databases WHERE database_id = DB_ID()"
)
INDEXED = (
    "SELECT COUNT(*) FROM sys.index_columns AS indexed"
    " WHERE indexed.object_id = OBJECT_ID({outbox}) AND indexed.key_ordinal = 1"
    " AND COL_NAME(indexed.object_id, indexed.column_id) = 'id'"
)
ALLOWED = "SELECT HAS_PERMS_BY_NAME({table}, 'OBJECT', {privilege})"
PRIVILEGES = {
    "outbox": ("SELECT", "UPDATE", "DELETE"),
    "fence": ("SELECT", "INSERT", "UPDATE"),
    "dead_letters": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}


def findings(session: Session, options: SqlServerOptions) -> Iterator[Finding]:
    """Checks version, encryption, isolation, durability, privileges and index."""
    yield _version(session)
    if options.source.encrypt and not options.source.trust:
        yield Finding(Level.OK, "encryption", "encrypted, and the server's certificate is verified")
    else:
        cure = "say Encrypt=yes and TrustServerCertificate=no in dataSource, and trust the server's authority"
        seen = "any certificate is accepted" if options.source.encrypt else "nothing is encrypted"
        yield Finding(Level.WARNING, "encryption", seen, cure)
    yield from _database(session)
    yield _privileges(session, options)
    yield from _outbox(session, session.idiom.quote_table(options.outbox))


def _version(session: Session) -> Finding:
    version, edition = session.query("read the version", SERVER)[0]
    if int(edition) not in AZURE and int(str(version).split(".")[0]) < OLDEST:
        return Finding(Level.ERROR, "version", f"SQL Server {version}", "use SQL Server 2016 or newer")
    return Finding(Level.OK, "version", f"SQL Server {version}")


def _database(session: Session) -> Iterator[Finding]:
    level, versioned, delayed, updateability = session.query("look at the database", DATABASE)[0]
    if int(level) < COMPATIBILITY:
        cure = f"ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = {COMPATIBILITY}, or higher"
        yield Finding(Level.ERROR, "compatibility", f"level {level} knows no OPENJSON", cure)
    if versioned:
        yield Finding(Level.OK, "isolation", "marks read versions, and wait for nobody who stashes")
    else:
        cure = "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON"
        seen = "READ_COMMITTED_SNAPSHOT is off: a mark waits for every transaction that has stashed"
        yield Finding(Level.WARNING, "isolation", seen, cure)
    if updateability != "READ_WRITE":
        cure = "connect to the primary, through a listener that moves with it"
        yield Finding(Level.ERROR, "durability", f"the database is {updateability}", cure)
    elif delayed == "FORCED":
        cure = "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = ALLOWED"
        seen = "commits do not wait for the disk: what a crash takes back is published again"
        yield Finding(Level.WARNING, "durability", seen, cure)
    else:
        yield Finding(Level.OK, "durability", "commits wait for the disk; autocommit is off")


def _privileges(session: Session, options: SqlServerOptions) -> Finding:
    missing = []
    for kind, wanted in PRIVILEGES.items():
        table = session.idiom.quote_table(getattr(options, kind))
        for privilege in wanted:
            asked = {"table": table, "privilege": privilege}
            # Null means that there is no such table, which another finding reports.
            if session.query("look at the privileges", ALLOWED, **asked)[0][0] == 0:
                missing.append(f"{privilege} ON {table}")
    return privileges(missing)


def _outbox(session: Session, outbox: str) -> Iterator[Finding]:
    if session.columns(outbox) and not session.query("look at the indexes", INDEXED, outbox=outbox)[0][0]:
        yield no_index_on_id()
