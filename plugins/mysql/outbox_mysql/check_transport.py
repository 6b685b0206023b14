"""What ``outbox check`` says about how the connection to MySQL or MariaDB is protected."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk import Finding
from outbox_sdk.portable import Session
from outbox_sdk.tls import Protection, transport_finding

from outbox_mysql.options import MySqlOptions

_CURE = (
    "set ssl-mode=VERIFY_IDENTITY and ssl-ca=FILE in dataSource, with the certificate of the authority that "
    "signed the server's"
)


def transport(session: Session, options: MySqlOptions) -> Sequence[Finding]:
    """Judges what became of the connection: the mode PREFERRED may give either."""
    [(_, cipher)] = session.query("look at the encryption", "SHOW STATUS LIKE 'Ssl_cipher'")
    connection, mode = session.connection, options.source.tls
    if not cipher:
        server = "" if mode == "DISABLED" else ", and the server offers no TLS: switch it on there"
        setting, protection = f"ssl-mode is {mode}{server}", Protection.NONE
    else:
        weaker = ", which takes a connection in clear as well" if mode == "PREFERRED" else ""
        setting, protection = f"ssl-mode is {mode}{weaker}", _protection(connection.ctx)
    # A file of defaults may name the host, or the socket.
    return transport_finding([connection.unix_socket or connection.host], protection, setting, _CURE)


def _protection(context: object) -> Protection:
    import ssl  # noqa: PLC0415 - not every Python has it

    if not isinstance(context, ssl.SSLContext) or context.verify_mode is ssl.CERT_NONE:
        return Protection.ENCRYPTED
    return Protection.VERIFIED if context.check_hostname else Protection.AUTHORITY
