"""What ``outbox check`` says about how the connection to Oracle is protected."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk import Finding
from outbox_sdk.portable import Session
from outbox_sdk.tls import Protection, transport_finding

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
