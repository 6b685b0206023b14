"""Orders of an outbox, each with its customer's row of a table, into Kafka: each once.

    spark-submit enriched_orders.py

Needs `pip install outbox-core 'outbox-spark[source,sink]' 'outbox-postgres[binary]'`, and these variables:
SHOP_DATABASE (the database of the outbox), CUSTOMERS (a folder of Parquet), KAFKA and CHECKPOINT.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, from_json, struct, to_json

ORDER = "order BIGINT, customer STRING, cents BIGINT"


def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Adds what the table says of the customer; an order of an unknown customer has nulls."""
    read = orders.select("key", from_json(col("value").cast("string"), ORDER).alias("row"))
    # A broadcast table moves no rows, so those of a key stay in their order. A sort-merge join would not do.
    joined = read.select("key", "row.*").join(broadcast(customers), "customer", "left")
    value = to_json(struct("order", "customer", "cents", "city", "discount"))
    return joined.select("key", value.alias("value"))


def main() -> None:
    spark = SparkSession.builder.appName("enriched-orders").getOrCreate()
    orders = spark.readStream.format("outbox").option("dataSource", "${SHOP_DATABASE}").load()
    # A batch that is repeated after a crash must have the same rows: give this query a table, or a version
    # of one, that does not change before its next start.
    customers = spark.read.parquet(os.environ["CUSTOMERS"]).select("customer", "city", "discount")
    messages = enriched(orders.where("topic = 'orders' AND NOT deleted"), customers)
    query = (
        messages.writeStream.format("outbox-kafka")
        .option("kafka.bootstrap.servers", os.environ["KAFKA"])
        .option("topic", "enriched-orders")
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .trigger(availableNow=True)  # or processingTime="1 second", for a query that does not end
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
