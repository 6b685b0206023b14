"""A client of the API server for one Lease, and what its errors mean."""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from outbox_api import AccessDenied, DriverError, FileText
from outbox_api.election import present_secret
from outbox_api.support.tls import cure_of

from outbox_kubernetes.options import KubernetesOptions, located

CONNECT_TIMEOUT = 5.0
"""Seconds that a request may take before there is anything to lose by waiting."""

_TOKEN = re.compile(r"[!-~]+")
_LONGEST_MESSAGE = 500


class Conflict(Exception):  # noqa: N818 - what happened, and no error: somebody else was faster
    """The Lease is not as the request says: somebody else has created or changed it meanwhile."""


class Client:
    """Asks the API server; used by one thread. Keeps one connection open, and opens another when it broke."""

    def __init__(self, options: KubernetesOptions) -> None:
        """Does not connect."""
        self._options = options = located(options)
        self.server, self.namespace = options.server or "", options.namespace
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self.timeout = CONNECT_TIMEOUT
        verified: dict[str, Any] = {}
        if urlsplit(self.server).scheme == "https":
            verified["ssl_context"] = self._context()
        # Proxies that the environment names are not for the API server, and urllib3 knows none.
        self._pool = urllib3.PoolManager(1, retries=False, **verified)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request, and returns the object of the answer; ``None`` if a GET finds none."""
        try:
            answer = self._pool.request(
                method,
                self.server + path,
                json=body,
                headers=self._headers(),
                timeout=urllib3.Timeout(total=self.timeout),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            cure = cure_of(error, "caFile") or "see that it runs, and that server is its address"
            raise DriverError(
                f"no answer from {self._named}: {_reason(error)}; {cure}", retryable=True
            ) from None
        return self._object(answer, method, path)

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._pool.clear()

    @property
    def _named(self) -> str:
        return f"Kubernetes' API server at {self.server}"

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._options.ca_file)
        except (OSError, ValueError) as error:
            message = f"cannot read the authority in caFile '{self._options.ca_file}': {error}"
            raise DriverError(message, retryable=False) from None

    def _headers(self) -> dict[str, str]:
        """Returns the headers with the present token, which the cluster replaces every hour or so."""
        file = self._options.token_file
        if not file:
            return {}
        token = present_secret(FileText((Path(file),))).strip()
        if not _TOKEN.fullmatch(token):  # the client's error would quote it
            raise DriverError(f"tokenFile '{file}' contains no token", retryable=False)
        return {"Authorization": f"Bearer {token}"}

    def _object(self, answer: urllib3.BaseHTTPResponse, method: str, path: str) -> Any:
        try:
            told = answer.json()
        except ValueError:
            told = None
        kind = told.get("kind") if isinstance(told, dict) else None
        if answer.status < HTTPStatus.MULTIPLE_CHOICES and kind is not None:
            return told
        if kind != "Status":
            message = (
                f"{self._named} answers {method} {path} with {answer.status}, and not as Kubernetes does"
            )
            gone = answer.status == HTTPStatus.NOT_FOUND
            raise DriverError(f"{message}; correct server", retryable=not gone)
        message = " ".join(str(told.get("message") or told.get("reason")).split())[:_LONGEST_MESSAGE]
        self._refuse(answer.status, f"{self._named} says: {message}", (told.get("details") or {}).get("kind"))
        if method == "GET":
            return None
        raise Conflict

    def _refuse(self, status: int, message: str, kind: str | None) -> None:
        """Raises what an answer means, unless it means that the Lease is not as the request says."""
        if status == HTTPStatus.UNAUTHORIZED:
            cure = f"see that tokenFile '{self._options.token_file}' has a valid token of this cluster"
            raise AccessDenied(f"{message}; {cure}")
        if status == HTTPStatus.FORBIDDEN:
            raise AccessDenied(f"{message}; {self.grant('get, create and update')}")
        if status == HTTPStatus.NOT_FOUND and kind == "namespaces":
            cure = f"create the namespace '{self.namespace}', or correct namespace"
            raise DriverError(f"{message}; {cure}", retryable=False)
        if status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            busy = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise DriverError(f"{message} ({status})", retryable=busy)

    def grant(self, verbs: str) -> str:
        """Returns what cures missing permissions."""
        return f"grant {verbs} on leases.coordination.k8s.io in the namespace '{self.namespace}' by a Role"


def _reason(error: Exception) -> str:
    """Returns the end of a client's error, without the names of its objects."""
    cause = error.args[-1] if error.args and isinstance(error.args[-1], Exception) else error
    return re.sub(r"^.*?(<[^>]*>|\)): ", "", str(cause)).strip() or type(cause).__name__
