"""A Spark application with one query for each sink, which a test kills: reads its task from standard input.

With ``fail`` no commit log can be written for the batch of that number: each query ends behind the sink
and before the commit. With ``hold`` no query gets the rows of the batch of that number: its note waits,
behind the offset log and before the sink. Then the process says so, and waits to be killed. Otherwise it
ends when nothing waits. With ``results`` it writes what Spark reads in each sink into a folder of Parquet
files.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from . import spark_sinks

GLANCE = 0.002
"""Seconds between two looks into an offset log."""
SLOW = "failed to connect back"
"""Spark gives a new Python process ten seconds, in which a busy machine may not start one."""
PAUSE = 20.0
"""Seconds between two starts of a query: on a busy machine Spark gives up on Python processes after ten."""
READ_BY_THE_TEST = {"postgres_append", "postgres_merge", "stash"}
LOCKS = list[Any]()
"""Connections that hold locks until the process is killed."""
WAITING_NOTE = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
    CREATE TRIGGER wait BEFORE UPDATE ON outbox_fence FOR EACH ROW
        WHEN (NEW.location = '{}') EXECUTE FUNCTION wait()
"""
"""Has the note of a batch wait for a lock; a source counts batches from 1."""


def start(spark: Any, query: Mapping[str, Any]) -> Any:
    orders = spark.readStream.format("outbox").options(**query["options"]).load()
    writer = getattr(spark_sinks, query["sink"])(orders, *query["into"])
    return writer.option("checkpointLocation", query["checkpoint"]).trigger(availableNow=True).start()


def once_logged(
    query: Mapping[str, Any], batch: int, act: Callable[[Mapping[str, Any]], None]
) -> threading.Thread:
    """Acts as soon as the offset log has a batch."""
    logged = Path(query["checkpoint"], "offsets", str(batch))

    def watch() -> None:
        while not logged.exists():
            time.sleep(GLANCE)
        act(query)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def close_commit_log(query: Mapping[str, Any]) -> None:
    commits = Path(query["checkpoint"], "commits")
    commits.rename(commits.with_name("kept"))
    commits.touch()


def hold_note(query: Mapping[str, Any], batch: int) -> None:
    connection = psycopg.connect(query["options"]["dataSource"], autocommit=True)
    connection.execute("SELECT pg_advisory_lock(1)")
    connection.execute(WAITING_NOTE.format(batch + 1))
    LOCKS.append(connection)


def keep(spark: Any, query: Mapping[str, Any], results: Path) -> None:
    """Writes what is in a sink: id, key, value, and the place by which it is sorted there."""
    if query["sink"].startswith("kafka"):
        bootstrap, topic = query["into"]
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("kafka.isolation.level", "read_committed")
        rows = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        columns = ["bigint(string(headers[0].value)) AS id", "(bigint(partition) << 40) + `offset` AS place"]
    else:
        form = "parquet" if query["sink"] == "files" else "delta"
        rows = spark.read.format(form).load(*query["into"])
        columns = ["id", "position AS place"]
    chosen = rows.selectExpr(*columns, "string(key) AS key", "string(value) AS value")
    chosen.write.mode("overwrite").parquet(str(results / query["sink"]))


def stop(spark: Any, query: Mapping[str, Any], task: Mapping[str, Any]) -> None:
    """Starts a query, and returns when it has stopped where the task says; that of ``hold`` still waits."""
    if "fail" in task:
        stopping = once_logged(query, task["fail"], close_commit_log)
    else:
        hold_note(query, task["hold"])
        stopping = once_logged(query, task["hold"], lambda _: None)
    running = start(spark, query)
    while stopping.is_alive():
        if not running.isActive:
            time.sleep(PAUSE)
            running = start(spark, query)
        stopping.join(0.1)
    if "fail" in task:
        with suppress(StreamingQueryException):
            running.awaitTermination()


def finish(spark: Any, query: Mapping[str, Any], running: Any) -> None:
    """Waits until nothing waits for a query; starts it again where Spark had no Python process in time."""
    while True:
        try:
            running.awaitTermination()
        except StreamingQueryException as error:
            if SLOW not in str(error):
                raise
            running = start(spark, query)
        else:
            return


def main() -> None:
    task = json.load(sys.stdin)
    spark = SparkSession.builder.config(map=task["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = task["queries"]
    if "fail" in task or "hold" in task:
        for query in queries:
            stop(spark, query, task)
        os.write(1, b"READY\n")
        threading.Event().wait()
    if "results" not in task:
        for query, running in [(query, start(spark, query)) for query in queries]:
            finish(spark, query, running)
        return
    for query in queries:  # One by one, so that a busy machine has few Python processes to start.
        finish(spark, query, start(spark, query))
        if query["sink"] not in READ_BY_THE_TEST:
            keep(spark, query, Path(task["results"]))


if __name__ == "__main__":
    main()
