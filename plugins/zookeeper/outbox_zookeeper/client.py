"""The client of ZooKeeper: its settings, its errors, and what it says in log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from outbox_api import AccessDenied, ConfigError, DriverError
from outbox_api.election import present_secret

from outbox_zookeeper.options import ZooKeeperOptions

CONNECT_TIMEOUT = 10.0
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
"""kazoo's own longest pause, a minute, would outlast an outage by far."""

_REFUSALS = (
    exceptions.AuthFailedError,
    exceptions.InvalidACLError,
    exceptions.NoAuthError,
    exceptions.SessionClosedRequireSaslError,
)


class ClientLog(logging.Logger):
    """Keeps what errors need of kazoo's log lines, and drops the lines, as some contain passwords."""

    def __init__(self) -> None:
        super().__init__("outbox_zookeeper.client", level=1)
        self.problem = ""
        self.session = 0.0  # seconds that the server has granted, which kazoo tells in a line only

    def handle(self, record: logging.LogRecord) -> None:
        """Takes the problem, or the session's length, from a line."""
        if record.levelno >= logging.WARNING:
            self.problem = record.getMessage()
        elif "negotiated session timeout" in record.msg and isinstance(record.args, tuple):
            milliseconds = record.args[2]
            self.session = milliseconds / 1000 if isinstance(milliseconds, int) else 0.0


class Client:
    """A connection to ZooKeeper, and the session that it serves; kazoo reconnects by itself.

    Every method raises ``DriverError`` if ZooKeeper refuses or cannot be reached.
    """

    def __init__(self, options: ZooKeeperOptions) -> None:
        self.options = options
        self.request_timeout = CONNECT_TIMEOUT
        self.log = ClientLog()
        self.acl = OPEN_ACL_UNSAFE if options.user is None else CREATOR_ALL_ACL
        settings = _settings(options)
        self._sasl: dict[str, Any] = settings.get("sasl_options", {})
        """kazoo's own, of which it takes the password at each connect."""
        try:
            self._kazoo = KazooClient(**settings, logger=self.log)
        except exceptions.ConfigurationError as error:
            raise ConfigError(f"ZooKeeper's client refuses the settings: {error}") from None
        try:
            with self._errors("cannot connect"):
                self._kazoo.start(CONNECT_TIMEOUT)
        except DriverError:
            self.stop()
            raise

    @property
    def session(self) -> int:
        """The session's number; 0 if there is none at present."""
        identity = self._kazoo.client_id
        return int(identity[0] or 0) if identity else 0

    def ask(self, what: str, *arguments: Any, **more: Any) -> Any:
        """Sends a request, kazoo's method ``<what>_async``, and returns its answer.

        Errors that say something about a node are raised as kazoo's: ``NoNodeError``, ``NodeExistsError``,
        ``BadVersionError``.
        """
        self.check_connected()
        with self._errors(f"cannot {what} the election's node"):
            return getattr(self._kazoo, f"{what}_async")(*arguments, **more).get(timeout=self.request_timeout)

    def check_connected(self) -> None:
        """Checks that the connection is not suspended at present."""
        with self._errors("not connected"):
            if not self._kazoo.connected:
                raise exceptions.ConnectionLoss

    def recover(self) -> None:
        """Connects with a new session if kazoo has given up, as after refused credentials. Never raises.

        Reads passwords in files anew.
        """
        if self._kazoo.client_state in ("AUTH_FAILED", "CLOSED"):
            with suppress(DriverError):  # the file is missing: the former password is tried again
                present = _settings(self.options)
                self._kazoo.auth_data = present.get("auth_data", set())
                self._kazoo.keyfile_password = present.get("keyfile_password")
                self._sasl.update(present.get("sasl_options", {}))
            self.stop()
            self._kazoo.start_async()

    def probe(self, path: str) -> None:
        """Creates a node below ``path``, and deletes it, to see whether that is permitted."""
        name = f"{path}/probe-{uuid4().hex}"
        self.ask("create", name, ephemeral=True, acl=self.acl)
        self.ask("delete", name)

    def stop(self) -> None:
        """Ends the session and disconnects. Idempotent, and never raises."""
        with suppress(exceptions.KazooException, OSError, AttributeError):  # the last: it never had a socket
            self._kazoo.stop()
            self._kazoo.close()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.NoNodeError, exceptions.NodeExistsError, exceptions.BadVersionError):
            raise
        except (exceptions.KazooException, KazooTimeoutError, OSError) as error:
            refused = isinstance(error, _REFUSALS) or self._is_refused()
            text = f"ZooKeeper at {self.options.hosts}: {what}: {type(error).__name__}"
            if self.log.problem and not self._kazoo.connected:
                text = f"{text} ({self.log.problem})"
            if refused:
                raise AccessDenied(f"{text}; {required(self.options)}") from None  # may quote a secret
            raise DriverError(text, retryable=True) from None

    def _is_refused(self) -> bool:
        return self.log.problem.startswith("AUTH_FAILED") and not self._kazoo.connected


def required(options: ZooKeeperOptions) -> str:
    """Returns what the election needs to be permitted, as the cure of a refusal."""
    who = f"user '{options.user}'" if options.user else "everybody (no user is set)"
    return f"correct user and password, or grant {who} all permissions (cdrwa) on {options.election}"


def _settings(options: ZooKeeperOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "hosts": options.hosts,
        "timeout": options.session_timeout,
        "connection_retry": _RECONNECT,
    }
    if options.tls:
        settings |= {
            "use_ssl": True,
            "check_hostname": True,
            "ca": options.ca_file,
            "certfile": options.certificate_file,
            "keyfile": options.key_file,
            "keyfile_password": options.key_password and present_secret(options.key_password),
        }
    return settings | _credentials(options)


def _credentials(options: ZooKeeperOptions) -> dict[str, Any]:
    if options.user is None or options.password is None:
        return {}
    password = present_secret(options.password)
    if options.authentication == "digest":
        return {"auth_data": {("digest", f"{options.user}:{password}")}}
    sasl = {"mechanism": "DIGEST-MD5", "username": options.user, "password": password}
    return {"sasl_options": sasl}
