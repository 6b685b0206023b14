"""A Spark application that publishes the numbers of files or of an outbox, until it has all or is killed.

Reads its task from standard input, and says READY once its session is there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession


def rows(spark: Any, task: Mapping[str, Any]) -> Any:
    if outbox := task["outbox"]:
        return spark.readStream.format("outbox").options(**outbox).load().select("key", "value")
    read = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", task["files"])
    return read.json(task["source"]).selectExpr(
        f"concat('k', id % {task['keys']}) AS key", "string(id) AS value"
    )


def main() -> None:
    task = json.load(sys.stdin)
    spark = SparkSession.builder.config(map=task["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    os.write(1, b"READY\n")
    writer = rows(spark, task).repartition(task["tasks"], "key").writeStream.format(task["format"])
    writer.options(**task["options"]).option("checkpointLocation", task["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
