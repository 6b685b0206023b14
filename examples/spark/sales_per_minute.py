"""Orders of an outbox, added up for each customer and minute, into Kafka: each sum once, when it is final.

    spark-submit sales_per_minute.py

Needs `pip install outbox-core 'outbox-spark[source,sink]' 'outbox-postgres[binary]'`, and these variables:
SHOP_DATABASE (the database of the outbox), KAFKA and CHECKPOINT.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct, sum, to_json, window  # noqa: A004

ORDER = "order BIGINT, customer STRING, cents BIGINT, placed TIMESTAMP"


def per_minute(orders: DataFrame) -> DataFrame:
    """Adds up orders that come no later than ten minutes behind the latest one."""
    read = orders.select(from_json(col("value").cast("string"), ORDER).alias("row")).select("row.*")
    # By the time in the event, which is the same when a batch is repeated.
    minute = window("placed", "1 minute")
    sums = (
        read.withWatermark("placed", "10 minutes")
        .groupBy("customer", minute.alias("minute"))
        .agg(count("order").alias("orders"), sum("cents").alias("cents"))
    )
    value = to_json(struct("customer", "minute.start", "orders", "cents"))
    return sums.select(col("customer").alias("key"), value.alias("value"))


def main() -> None:
    spark = SparkSession.builder.appName("sales-per-minute").getOrCreate()
    orders = spark.readStream.format("outbox").option("dataSource", "${SHOP_DATABASE}").load()
    messages = per_minute(orders.where("topic = 'orders' AND NOT deleted"))
    query = (
        messages.writeStream.format("outbox-kafka")
        .outputMode("append")  # a sum is published when the watermark has passed its minute
        .option("kafka.bootstrap.servers", os.environ["KAFKA"])
        .option("topic", "sales-per-minute")
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .trigger(availableNow=True)  # or processingTime="10 seconds", for a query that does not end
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
