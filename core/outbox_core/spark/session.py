"""Starts the Spark application that lanes run in: embedded in this process's own JVM, or on a cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, STDOUT
from threading import Thread
from typing import IO

from outbox_sdk import OutboxError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from outbox_core.spark.java import CURE, java_home

log = logging.getLogger(__name__)

LOG4J = Path(__file__).with_name("log4j2.properties").as_uri()
TAIL_LINES = 20


def start_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """Starts the application, with ``settings`` above this engine's own defaults.

    Raises:
        OutboxError: There is no Java, or Spark does not start; the message carries what the JVM said.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    # Workers must be an interpreter that has our plugins, not the first python3 of PATH.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    # It logs every error that it also raises, with its traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    conf = SparkConf().setAll(list({**_defaults(name, master), **settings}.items()))
    said: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": PIPE, "stderr": STDOUT})  # type: ignore[no-untyped-call]  # PySpark's own gap
        Thread(target=_listen, args=(gateway.proc.stdout, said), name="jvm-output", daemon=True).start()
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except Exception as error:
        reason = str(error).strip().split("\n", 1)[0]
        tail = "".join(f"\n  {line}" for line in said)
        raise OutboxError(f"Spark did not start on {master}: {reason}; {CURE}{tail}") from error


def stop_session(session: SparkSession) -> None:
    """Stops the application and ends its JVM, so that a process can start another."""
    gateway = session.sparkContext._gateway  # noqa: SLF001 - PySpark itself keeps the JVM for ever
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which the JVM takes as its order to exit
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or the next start would use it


def _listen(output: IO[bytes], said: deque[str]) -> None:
    """Reads what the JVM and its Python workers print, which would otherwise block or litter the terminal."""
    for line in output:
        text = line.decode(errors="replace").rstrip()
        said.append(text)
        log.debug("jvm: %s", text)


def _defaults(name: str, master: str) -> dict[str, str]:
    local = master.startswith("local")
    defaults = {
        "spark.app.name": f"outbox {name}",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Receipts leave at once, and a cancelled task hears of it at its next yield.
        "spark.python.udf.pipelined.enabled": "true",
        # The engine itself starts a lost group's job anew, wherever there is a slot: quicker than Spark,
        # never adding up to failure in weeks, and never silent.
        "spark.task.maxFailures": "1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J} -XX:+UseSerialGC",
    }
    if local:
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
        }
    return defaults
