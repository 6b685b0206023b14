"""An application takes orders, a pipeline makes tables of its outbox, and its driver is killed three times.

    make demo-lakehouse
    make demo-lakehouse ARGS="--changes 50000 --kills 1"

Ends with 1 if the table of the lakehouse is not the application's, row for row.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from outbox_servers.services.java import find_java
from outbox_servers.services.postgres import PostgresServer
from pyspark.sql import SparkSession
from shop import Shop

HERE = Path(__file__).parent
CORES = 2
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=192m"  # a JVM that starts fast
POLL_SECONDS = 0.1
PROGRESS_SECONDS = 5.0
LIMIT_SECONDS = 1200.0
"""After which it gives up."""

SLOW = "failed to connect back"
MOST_SLOW = 5
"""So many runs may fail because Spark gives Python ten seconds to start, which a busy machine may exceed."""


class Lakehouse:
    """A folder with the tables, Spark's settings and the pipeline.

    Args:
        folder: The folder; absolute.
        data_source: The database of the outbox.
    """

    def __init__(self, folder: Path, data_source: str) -> None:
        self._folder = folder
        self.log = folder / "pipeline.log"
        os.environ.update(find_java().environment())
        os.environ |= {
            "SHOP_DATABASE": data_source,
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        (folder / "spark-defaults.conf").write_text(
            f"""
            spark.driver.memory 1g
            spark.driver.host 127.0.0.1
            spark.driver.extraJavaOptions {JAVA_OPTIONS} -Dderby.system.home={folder}
            spark.python.authenticate.socketTimeout 2m
            spark.ui.enabled false
            spark.ui.showConsoleProgress false
            spark.sql.shuffle.partitions 4
            spark.sql.catalogImplementation hive
            spark.sql.warehouse.dir file://{folder}/warehouse
            spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={folder}/catalog;create=true
            """
        )
        shutil.copy(HERE / "orders.py", folder)
        lines = (HERE / "spark-pipeline.yml").read_text().splitlines()
        mine = [
            f"storage: file://{folder}/storage" if line.startswith("storage:") else line for line in lines
        ]
        (folder / "spark-pipeline.yml").write_text("\n".join(mine))

    @contextmanager
    def update(self) -> Iterator[subprocess.Popen[bytes]]:
        """Runs the pipeline once, in a process group of its own: client, driver and what the driver starts.

        It does what `spark-pipelines run` does, without the second JVM that this starts first.
        """
        with (
            self.log.open("wb") as log,
            subprocess.Popen(
                [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
                cwd=self._folder,
                env={**os.environ, "SPARK_REMOTE": f"local[{CORES}]"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def batches(self) -> int:
        """Returns how many batches Spark has committed."""
        return len(list(self._folder.glob("storage/**/commits/[0-9]*")))

    def query(self) -> SparkSession:
        """Returns a session that sees the tables."""
        return SparkSession.builder.master(f"local[{CORES}]").getOrCreate()


class Demonstration:
    """The steps.

    Args:
        shop: The application.
        lakehouse: The tables.
    """

    def __init__(self, shop: Shop, lakehouse: Lakehouse) -> None:
        self._shop = shop
        self._lakehouse = lakehouse
        self._began = time.monotonic()
        self._told = 0.0
        self._slow = 0

    def say(self, text: str) -> None:
        """Prints a line."""
        self._told = time.monotonic()
        print(f"{self._told - self._began:6.1f} s  {text}", flush=True)

    def run(self, kills: int) -> bool:
        """Runs all steps; returns whether the tables are right."""
        self._shop.open()
        self.say("the application takes orders; the pipeline starts")
        killed = 0
        while killed < kills:
            killed += self._update(kill=True)
        # The kill may have come after the last batch, and before the tables that are made of it.
        complete = False
        while not complete or self._shop.writing() or self._shop.waiting():
            complete = self._update(kill=False)
        seconds = time.monotonic() - self._began
        rate = self._shop.written() / seconds
        self.say(
            f"all {self._shop.written():,} changes are in the lakehouse: {rate:,.0f} a second, kills included"
        )
        return self._compare()

    def _update(self, *, kill: bool) -> bool:
        """Runs the pipeline; returns whether it was killed, after a batch, or without ``kill`` ended well."""
        before = self._lakehouse.batches()
        with self._lakehouse.update() as process:
            while process.poll() is None:
                if kill and self._lakehouse.batches() > before and self._shop.waiting():
                    time.sleep(random.random())  # anywhere in the next batch
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                        self.say(f"the driver was killed, {self._state()}; it starts again")
                        return True
                self._progress()
                time.sleep(POLL_SECONDS)
        if process.returncode:
            self._repeat(self._lakehouse.log.read_text(errors="replace"))
            return False
        if kill and not self._shop.writing():
            raise RuntimeError(
                "everything was written before the driver was killed often enough; take more changes"
            )
        self.say(f"an update of the tables has ended, {self._state()}")
        return not kill

    def _repeat(self, log: str) -> None:
        """Lets a run be repeated in which Python was too slow."""
        self._slow += 1
        if SLOW not in log or self._slow > MOST_SLOW:
            raise RuntimeError(f"the pipeline failed:\n{log[-3000:]}")
        self.say("this machine is too busy to start Python in ten seconds, so Spark gave up; it starts again")

    def _progress(self) -> None:
        if time.monotonic() - self._began > LIMIT_SECONDS:
            raise RuntimeError(f"it takes longer than {LIMIT_SECONDS:.0f} s; gave up")
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self.say(self._state())

    def _state(self) -> str:
        return (
            f"{self._shop.written():,} changes written, {self._shop.waiting():,} in the outbox, "
            f"{self._lakehouse.batches()} batches committed"
        )

    def _compare(self) -> bool:
        """Queries the tables, shows some rows, and compares them with the application's table."""
        spark = self._lakehouse.query()
        try:
            count, ids, positions = spark.sql(
                "SELECT count(*), count(DISTINCT id), count(DISTINCT position) FROM changes"
            ).collect()[0]
            [[overtaken]] = spark.sql(
                "SELECT count_if(id < former) FROM ("
                "SELECT id, lag(id) OVER (PARTITION BY key ORDER BY position) AS former FROM changes)"
            ).collect()
            rows = [tuple(row) for row in spark.table("orders").collect()]
            print("\nSELECT status, count(*), sum(cents) FROM orders GROUP BY status", flush=True)
            spark.sql(
                "SELECT status, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY status"
            ).show()
            print("SELECT * FROM history WHERE order_id = 'order-1'", flush=True)
            spark.sql("SELECT * FROM history WHERE order_id = 'order-1' ORDER BY since").show(8)
        finally:
            spark.stop()
        written, own = self._shop.written(), self._shop.orders()
        differ = len(own.symmetric_difference(rows)) + len(rows) - len(set(rows))
        self.say(
            f"changes: {count:,} of {written:,}; lost {written - ids:,}, twice {count - ids:,}, "
            f"overtaken {overtaken:,}, positions given twice {count - positions:,}"
        )
        self.say(f"orders: {len(rows):,} rows in the lakehouse, {len(own):,} in the shop; {differ:,} differ")
        return (count, ids, positions, overtaken, differ) == (written, written, written, 0, 0)


def main() -> int:
    """Runs the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--changes", type=int, default=200_000, help="of orders (%(default)s)")
    parser.add_argument("--rate", type=float, default=4_000.0, help="changes a second (%(default)s)")
    parser.add_argument("--kills", type=int, default=3, help="of the driver (%(default)s)")
    options = parser.parse_args()
    killed = "once" if options.kills == 1 else f"{options.kills} times"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-lakehouse-"))).resolve()
        server = stack.enter_context(
            PostgresServer(progress=lambda text: print(f"          {text}", flush=True))
        )
        shop = Shop(server.dsn, options.changes, options.rate)
        try:
            good = Demonstration(shop, Lakehouse(folder, server.dsn)).run(options.kills)
        except RuntimeError as stop:
            print(f"BAD: {stop}")
            return 1
        except KeyboardInterrupt:
            print("stopped; nothing is left running")
            return 130
    print(
        f"GOOD: the driver was killed {killed}, and the lakehouse has the shop's orders, row for row, "
        "and every change once"
        if good
        else "BAD: the lakehouse is not what the shop wrote; see above"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
