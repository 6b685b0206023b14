"""Spark's own settings of security: what must be hidden of them, and what a cluster lacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from outbox_api import ConfigError
from outbox_api.base.finding import Finding, Level
from pyspark.find_spark_home import _find_spark_home

HIDDEN_NAMES = (
    "(?i)secret|passw|passphrase|pwd|token|credential|jaas|(access|account|api|private|signing)[._-]?key"
)
"""A pattern of what names a secret, for Python and for Java: Spark's own, and more."""
_AUTHENTICATE = "spark.authenticate"
EMBEDDED = {_AUTHENTICATE: "true", "spark.network.crypto.enabled": "true"}
"""What closes the ports of an embedded Spark to the machine's other users; Spark makes the secret itself."""
_SHARED = "spark.authenticate.secret"
_FILES = ("spark.authenticate.secret.file", "spark.authenticate.secret.driver.file")
_MIN_LENGTH = 4
"""The length below which a value cannot be told from other words."""
_PAIR = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*?)\s*")


def secrets(settings: Mapping[str, str]) -> list[str]:
    """Returns the values among settings that nobody should see, the longest first."""
    found = {value for name, value in settings.items() if re.search(HIDDEN_NAMES, name)}
    shown = ("true", "false")
    return sorted((each for each in found - {*shown} if len(each) >= _MIN_LENGTH), key=len, reverse=True)


def with_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns settings, and below them those of ``spark-defaults.conf``, which may be missing."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    defaults = {match[1]: match[2] for line in lines if (match := _PAIR.fullmatch(line))}
    return {**defaults, **settings}


def is_embedded(master: str) -> bool:
    """Tells whether a master's URL means this machine alone."""
    return master.startswith("local")


def require_authentication(master: str, settings: Mapping[str, str]) -> None:
    """Makes sure that the ports of an embedded Spark are not open to everybody on this machine."""
    if is_embedded(master) and not _on({**EMBEDDED, **settings}, _AUTHENTICATE):
        raise ConfigError(
            f"{_AUTHENTICATE} is off: every user of this machine could read the passwords that Spark's tasks "
            "carry; remove it from harvest.engine.settings"
        )


def check_security(master: str, given: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that nobody else can read or change Spark's tasks."""
    if is_embedded(master):
        try:
            require_authentication(master, given)
        except ConfigError as error:
            yield Finding(Level.ERROR, _AUTHENTICATE, *str(error).rsplit("; ", 1))
        else:
            how = "tasks, which carry passwords, are for this process alone, with a secret that it makes"
            yield Finding(Level.OK, "Spark security", how)
        return
    settings = with_defaults(given)
    at_fault = [*_authentication(master, settings), *_encryption(settings)]
    tls = _on(settings, "spark.ssl.rpc.enabled")
    how = f"tasks, which carry passwords, are authenticated and encrypted ({'TLS' if tls else 'AES'})"
    yield from at_fault or [Finding(Level.OK, "Spark security", how)]


def _authentication(master: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    # Yarn and Kubernetes make a secret for each application.
    alone = master == "yarn" or master.startswith("k8s://")
    given = alone or any(settings.get(name) for name in (_SHARED, *_FILES))
    where = "" if alone else f", and {_SHARED} as its master and workers have it"
    if not _on(settings, _AUTHENTICATE):
        yield Finding(
            Level.ERROR,
            _AUTHENTICATE,
            f"whoever reaches {master}, or its executors, can have tasks with the passwords that they carry",
            f"set {_AUTHENTICATE}: true in harvest.engine.settings{where}; see docs/spark-clusters.md",
        )
    elif not given:
        yield Finding(
            Level.ERROR,
            _SHARED,
            f"Spark does not start: {master} makes no secret for each application",
            f"set {_SHARED} in harvest.engine.settings{where.removeprefix(f', and {_SHARED}')}",
        )


def _encryption(settings: Mapping[str, str]) -> Iterator[Finding]:
    # TLS for pages (spark.ssl.enabled) is not TLS for tasks. SASL's encryption is obsolete.
    if not _on(settings, "spark.network.crypto.enabled") and not _on(settings, "spark.ssl.rpc.enabled"):
        yield Finding(
            Level.ERROR,
            "spark.network.crypto.enabled",
            "tasks, and the passwords that they carry, cross the network as plain text",
            "set spark.network.crypto.enabled: true in harvest.engine.settings, "
            "or spark.ssl.rpc.enabled: true with a key store (spark.ssl.rpc.keyStore)",
        )
    if not _on(settings, "spark.io.encryption.enabled"):
        yield Finding(
            Level.ERROR,
            "spark.io.encryption.enabled",
            "Spark may write tasks, and the passwords that they carry, to local disks as plain text",
            "set spark.io.encryption.enabled: true in harvest.engine.settings",
        )


def _on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() == "true"
