"""What ``outbox check`` reports about a SQL Server, except the columns of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outbox_api import Finding, Level
from outbox_api.portable import Session
from outbox_api.portable.check import id_index
from outbox_api.support.tls import Protection, transport_finding

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
_VERIFY = (
    "set Encrypt=yes, TrustServerCertificate=no and CAFile=FILE in dataSource, with the certificate of the "
    "authority that signed the server's"
)


def findings(session: Session, options: SqlServerOptions) -> Iterator[Finding]:
    """Checks version, encryption, isolation, durability and index."""
    yield _version(session)
    yield from _transport(options)
    yield from _database(session)
    if session.columns(session.idiom.quote_table(options.outbox)):
        yield from id_index(session, options.outbox)


def _transport(options: SqlServerOptions) -> Sequence[Finding]:
    source = options.source
    if not source.encrypt:
        protection, setting = Protection.NONE, "Encrypt is no"
    elif source.trust:
        protection, setting = Protection.ENCRYPTED, "TrustServerCertificate is yes"
    else:  # a connection that did not come to that was refused
        protection, setting = Protection.VERIFIED, ""
    return transport_finding([source.host], protection, setting, _VERIFY)


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
