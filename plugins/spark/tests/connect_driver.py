"""An application of Spark Connect: reads an outbox, stashes into another, and publishes; prints what it saw.

    python connect_driver.py SETTINGS  # as JSON

Starts the server of Connect itself; client and server speak gRPC.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.sql import SparkSession
from pyspark_outbox.metrics import OutboxListener

PATIENCE = 120
PURGED = re.compile(r"^outbox_purged\S*\{.*\} (\S+)$", re.MULTILINE)


def run(given: dict[str, Any]) -> dict[str, Any]:
    """Moves rows from one outbox into the other, and those into Kafka."""
    folder = Path(given["folder"])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    listener = OutboxListener(spark, port=0)
    spark.streams.addListener(listener)

    def through(source: dict[str, str], name: str, sink: str, columns: list[str], **options: str) -> None:
        rows = spark.readStream.format("outbox").options(**source).load().select(*columns)
        writer = (
            rows.writeStream.format(sink).options(**options).option("checkpointLocation", str(folder / name))
        )
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(PATIENCE):
            raise TimeoutError(name)

    waiting = spark.read.format("outbox").options(**given["first"]).load().count()
    through(given["first"], "stashed", "outbox", ["topic", "key", "value", "headers"], **given["second"])
    message = ["topic", "key", "value", "headers", "partition", "timestamp"]
    through(given["second"], "published", "outbox-kafka", message, **given["kafka"])
    purged = 0
    for _ in range(PATIENCE * 10):  # Spark tells listeners in its own time
        with urlopen(f"http://127.0.0.1:{listener.port}/metrics") as page:
            purged = sum(int(float(rows)) for rows in PURGED.findall(page.read().decode()))
        if purged == 2 * waiting:
            break
        time.sleep(0.1)
    spark.streams.removeListener(listener)
    spark.stop()
    return {"waiting": waiting, "session": type(spark).__module__, "purged": purged}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(json.loads(sys.argv[1]))))
