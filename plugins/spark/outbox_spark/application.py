"""The Spark application that lanes run in: embedded in a JVM of this process, or on a cluster."""

from __future__ import annotations

import logging
import os
import pwd
import secrets
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Timer

from outbox_api import Address, EngineError, Task
from outbox_api.support.context_thread import ContextThread
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from outbox_spark.class_data import find_archive, may_archive, options_for
from outbox_spark.jvm import START_SECONDS, Jvm, java_home
from outbox_spark.options import SPECULATION
from outbox_spark.security import EMBEDDED, HIDDEN_NAMES, is_embedded, with_defaults
from outbox_spark.watchdog import Answer, Watchdog

log = logging.getLogger("outbox.spark")

LOG4J = Path(__file__).with_name("log4j2.properties").as_uri()
STOP_SECONDS = 5.0
"""How long an application may take to stop before its JVM is ended all the same."""
STRANGER = "outbox"
"""What Spark calls a user without a name, as containers have them."""
JAVA_OPTIONS = (
    f"-Dlog4j2.configurationFile={LOG4J} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=192m"
)
"""The JVM's options. So much room for classes that loading them causes no collection of all garbage."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_REDACTION = "spark.redaction.regex"
"""What Spark's own pages and event logs hide."""


class Application:
    """A Spark application with a JVM of its own. One at a time in each process."""

    def __init__(self, name: str, master: str, settings: Mapping[str, str], training: str = "") -> None:
        java = java_home()
        os.environ["JAVA_HOME"] = str(java)
        # Workers must be an interpreter that has our plugins, not the first python3 of PATH.
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
        if is_embedded(master):  # the name of the machine need not resolve
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Py4J logs every error that it also raises, with its traceback; some of them through the root logger.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_not_py4j)  # has no effect when it is there already
        unnamed = _has_no_name()
        archive = None
        if not training and may_archive(master, settings):
            archive = find_archive(java, Path(_find_spark_home()), JAVA_OPTIONS)
        wanted = {**_defaults(name, master), **settings}
        # Whoever runs this machine may know of more secrets, or none.
        wanted.setdefault(_REDACTION, with_defaults({}).get(_REDACTION, HIDDEN_NAMES))
        wanted[_JAVA_OPTIONS] += training or (options_for(archive) if archive else "")
        if unnamed:
            os.environ.setdefault("SPARK_USER", STRANGER)
            wanted[_JAVA_OPTIONS] += f" -Duser.name={STRANGER} -Duser.home={tempfile.gettempdir()}"
        conf = SparkConf().setAll(list(wanted.items()))
        try:
            self.jvm = Jvm(conf)
        except EngineError as error:
            raise EngineError(f"Spark did not start on {master}: {error}") from error
        gateway = self.jvm.gateway
        self.master = master
        self.defect = ""
        # Whatever it is asked, it fails then.
        too_long = Timer(START_SECONDS, self.give_up, [f"it does not get ready within {START_SECONDS:.0f} s"])
        too_long.daemon = True
        if not training:  # which leaves the processor to everybody else, however long it takes
            too_long.start()
        try:
            if unnamed:  # Hadoop would ask the machine who this is, and refuse to work without an answer
                hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
                hadoop.setLoginUser(hadoop.createRemoteUser(os.environ["SPARK_USER"]))
            self.context = context = SparkContext(conf=conf, gateway=gateway)
            # Its thread prints a traceback when the JVM closes the connection, as a JVM does that is killed.
            context._accumulatorServer.handle_error = _log_error  # type: ignore[method-assign, assignment]  # noqa: SLF001 - PySpark offers no other way
            # An empty one: records do not pass through Spark, as lanes find them in the outbox. Made once, as
            # PySpark writes a file for it, into a folder that others may clean up.
            self._nothing = context.parallelize(range(0), 1)
            found = context.getConf()
            host, bind = found.get("spark.driver.host"), found.get("spark.driver.bindAddress")
            self.address = Address(host or "127.0.0.1", bind or "")
            self._watch = None if training else Watchdog(self.ask, self.give_up)
        except Exception as error:
            reason = self.defect or str(error).strip().split("\n", 1)[0]
            self.jvm.end()
            _forget()
            raise EngineError(f"Spark did not start on {master}: {reason}{self.jvm.words}") from error
        finally:
            too_long.cancel()

    @property
    def trouble(self) -> str:
        """What is wrong with it, after a call into its JVM has failed."""
        return self.defect or ("Spark's JVM does not answer" if self.jvm.alive else "Spark's JVM has died")

    def ask(self) -> Answer:
        """Asks how it is; may hang."""
        scala = self.context._jsc.sc()  # noqa: SLF001 - PySpark itself cannot count free slots
        if scala.isStopped():
            return Answer(stopped=True, slots=0)
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return Answer(stopped=False, slots=int(scala.maxNumConcurrentTasks(profile)))

    def give_up(self, defect: str) -> None:
        """Kills its JVM, so that all who use it, or wait for it, hear that another is needed."""
        self.defect = defect
        log.warning("the Spark application is given up: %s", defect)
        self.jvm.kill()

    def run(self, key: str, tasks: int, task: Task, description: str = "") -> None:
        """Runs one job that executes ``task`` so many times at once, and waits for its end."""
        if not self.jvm.alive:  # by now another may be PySpark's
            raise ConnectionError(self.trouble)
        # By thread: PySpark gives each of ours one of its own in the JVM.
        self.context.setJobGroup(key, description)
        partitions = [self._nothing] * tasks
        (self.context.union(partitions) if tasks > 1 else self._nothing).foreachPartition(lambda _: task())

    def works_for(self, key: str) -> bool:
        """Tells whether tasks of a job run, and not only wait for slots; may hang."""
        tracker = self.context.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(key)))
        stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
        return any(stage.numActiveTasks for stage in stages)

    def stop(self, exit_seconds: float | None = None) -> None:
        """Stops the application and ends its JVM, hanging or not, so that a process can start another."""
        if self._watch is not None:
            self._watch.end()
        stopping = ContextThread(target=self._stop, name="spark-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        self.jvm.end(exit_seconds)
        stopping.join(STOP_SECONDS)  # what hung in the JVM has failed
        _forget()

    def _stop(self) -> None:
        with suppress(Py4JError, OSError, RuntimeWarning):  # of a JVM that is dead already
            self.context.stop()
            self.jvm.gateway.shutdown()


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _log_error(*_: object) -> None:
    log.debug("a connection of Spark's accumulators ended: %r", sys.exception())


def _forget() -> None:
    """Lets PySpark forget the JVM, which it would use for the next application, too."""
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - PySpark itself keeps it for ever
    SparkContext._active_spark_context = None  # noqa: SLF001 - left behind by an application that hung


def _has_no_name() -> bool:
    """Tells whether this machine has no name for its user."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def _defaults(name: str, master: str) -> dict[str, str]:
    defaults = {
        "spark.app.name": f"outbox {name}",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The engine itself starts a lost group's job anew, wherever there is a slot: quicker than Spark,
        # never adding up to failure in weeks, and never silent.
        "spark.task.maxFailures": "1",
        SPECULATION: "false",  # also where a cluster's own defaults say otherwise
        # A service manager tells all processes to end: workers wait until their lanes are drained.
        "spark.python.daemon.module": "outbox_spark.daemon",
        # Their working directory may be anybody's: no module of it is taken for one of ours.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        _JAVA_OPTIONS: JAVA_OPTIONS,
    }
    if is_embedded(master):
        defaults |= {
            **EMBEDDED,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
        }
    if master.startswith("k8s://"):  # or executors connect to the address that this process binds to
        defaults["spark.kubernetes.executor.useDriverPodIP"] = "false"
    if master.startswith("local-cluster"):  # the one kind for which Spark makes no secret
        defaults["spark.authenticate.secret"] = secrets.token_hex(32)
    return defaults
