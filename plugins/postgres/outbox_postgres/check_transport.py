"""What ``outbox check`` says about how the connection to PostgreSQL is protected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from outbox_sdk import Finding
from outbox_sdk.tls import Protection, transport_finding

from outbox_postgres.data_source import DataSource

_KERBEROS = "SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()"
_BY_MODE = {"verify-full": Protection.VERIFIED, "verify-ca": Protection.AUTHORITY}
_CURE = (
    "set sslmode=verify-full and sslrootcert=FILE in dataSource, with the certificate of the authority that "
    "signed the server's"
)


def check_transport(connection: psycopg.Connection[Any], source: DataSource) -> Sequence[Finding]:
    """Judges the settings as libpq has found them, and what it made of them: some modes give either."""
    settings = {option.keyword.decode(): (option.val or b"").decode() for option in connection.pgconn.info}
    # psycopg tries the hosts one by one, and resolves them before.
    written = source.parameters.get("hostaddr") or source.parameters.get("host")
    hosts = (written or settings.get("host") or connection.info.host).split(",")
    mode = settings.get("sslmode", "")
    if not connection.pgconn.ssl_in_use:
        row = connection.execute(_KERBEROS).fetchone()
        protection = Protection.VERIFIED if row and row[0] else Protection.NONE
        server = "" if mode == "disable" else ", and the server offers no TLS: switch ssl on there"
        return transport_finding(hosts, protection, f"sslmode is {mode}{server}", _CURE)
    protection = _BY_MODE.get(mode, Protection.ENCRYPTED)
    weaker = ", which takes a connection in clear as well" if mode in ("allow", "prefer") else ""
    return transport_finding(hosts, protection, f"sslmode is {mode}{weaker}", _CURE)
