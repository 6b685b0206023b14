"""The orders of a shop as tables of a lakehouse, declared: their changes, their history, their current state.

`spark-pipelines run` brings all three up to date. It needs `pip install 'pyspark[pipelines]>=4.3'` and the
source: see the README.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


# What was read once is gone from the outbox: a full refresh could not bring it back.
@dp.table(table_properties={"pipelines.reset.allowed": "false"})
def changes() -> DataFrame:
    """Every record, once."""
    return spark.readStream.format("outbox").option("dataSource", "${SHOP_DATABASE}").load()


@dp.materialized_view
def history() -> DataFrame:
    """Every state of every order, and how long it lasted; a tombstone ends the last one."""
    return spark.sql("""
        SELECT order_id, state.*, since, until FROM (
            SELECT key AS order_id, deleted, create_time AS since,
                from_json(string(value), 'customer STRING, status STRING, cents INT') AS state,
                lead(create_time) OVER (PARTITION BY key ORDER BY position) AS until
            FROM changes)
        WHERE NOT deleted""")


@dp.materialized_view
def orders() -> DataFrame:
    """The shop's table `orders`, as it is now."""
    return spark.sql("SELECT order_id, customer, status, cents FROM history WHERE until IS NULL")
