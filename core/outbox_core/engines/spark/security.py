"""Spark's own settings of security: what must be hidden of them, and what a cluster lacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from outbox_sdk.finding import Finding, Level
from pyspark.find_spark_home import _find_spark_home

HIDDEN_NAMES = (
    "(?i)secret|passw|passphrase|pwd|token|credential|jaas|(access|account|api|private|signing)[._-]?key"
)
"""A pattern of what names a secret, for Python and for Java: Spark's own, and more."""
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


def check_security(master: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that nobody on the network of a cluster can read or change its tasks.

    Args:
        master: The master's URL. One on this machine alone has nothing to check.
        settings: Spark's settings, with its defaults.
    """
    if master.startswith("local"):
        return
    at_fault = [*_authentication(master, settings), *_encryption(settings)]
    tls = _on(settings, "spark.ssl.rpc.enabled")
    how = f"tasks, which carry passwords, are authenticated and encrypted ({'TLS' if tls else 'AES'})"
    yield from at_fault or [Finding(Level.OK, "Spark security", how)]


def _authentication(master: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    # Yarn and Kubernetes make a secret for each application.
    alone = master == "yarn" or master.startswith("k8s://")
    given = alone or any(settings.get(name) for name in (_SHARED, *_FILES))
    where = "" if alone else f", and {_SHARED} as its master and workers have it"
    if not _on(settings, "spark.authenticate"):
        yield Finding(
            Level.ERROR,
            "spark.authenticate",
            f"whoever reaches {master}, or its executors, can have tasks with the passwords that they carry",
            f"set spark.authenticate: true in harvest.engine.settings{where}; see docs/operations.md",
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
