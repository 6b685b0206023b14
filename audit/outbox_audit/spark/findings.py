"""What an audit finds, by windows over sorted rows: the definitions of :class:`outbox_audit.Audit`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from outbox_api import OutboxError
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's users know it by this name

from outbox_audit.audit import EXAMPLES
from outbox_audit.result import Defect, RecordName, Result

ROWS = "audit int, key string, sequence bigint, topic int, partition int, offset bigint"
"""Committed records, and messages. The topic, a number, and what follows is null of committed records."""
DELIVERED, REPEATED, TWICE = "delivered", "repeated", "twice"
"""What else is counted: first arrivals, further ones, records that the ledger has already."""

_PLACE = ("topic", "partition", "offset")


def find(rows: DataFrame) -> DataFrame:
    """Returns what is found, and how often.

    Messages have arrived in the order of topic, partition and offset.

    Args:
        rows: Of :data:`ROWS`, in any order; read once.

    Returns:
        Rows of ``audit``, ``finding`` and ``number``. A :class:`Defect` and ``twice`` have a row for each
        record or message, with ``key``, ``sequence`` and place; ``delivered`` and ``repeated`` one in all.
    """
    # A record comes before its messages, as it has no place. One shuffle and two sorts serve all windows.
    same = Window.partitionBy("key", "audit", "sequence").orderBy(*_PLACE)
    before = Window.partitionBy("key", "audit").orderBy(*_PLACE).rowsBetween(Window.unboundedPreceding, -1)
    sequence, turn, is_committed = F.col("sequence"), F.col("turn"), F.col("is_committed")
    is_entry = F.col("offset").isNull()
    numbered = rows.repartition("key", "audit").select(
        "*",
        F.first("offset").over(same).isNull().alias("is_committed"),
        (F.row_number().over(same) - 1).alias("turn"),
        F.lead(F.lit(1)).over(same).isNotNull().alias("has_arrived"),
    )
    told = numbered.where(~(is_entry & (turn == 0) & F.col("has_arrived")))  # by the messages
    furthest = F.max(F.when(is_committed & ~is_entry, sequence)).over(before)
    is_behind, is_first = F.col("is_behind"), turn == 1
    found = (
        F.when(is_entry, F.array(F.when(turn == 0, Defect.LOST).otherwise(TWICE)))
        .when(~is_committed, F.array(F.lit(Defect.FOREIGN)))
        .otherwise(
            F.array_compact(
                F.array(
                    F.when(is_first, DELIVERED).otherwise(REPEATED),
                    F.when(turn == 2, Defect.DUPLICATES),  # noqa: PLR2004 - the first repetition
                    F.when(is_behind & is_first, Defect.OVERTAKEN),
                    F.when(is_behind & ~is_first, Defect.REAPPEARED),
                )
            )
        )
    )
    each = told.withColumn("is_behind", sequence < furthest).select("*", F.explode(found).alias("finding"))
    is_named = ~F.col("finding").isin(DELIVERED, REPEATED)
    which = [F.when(is_named, F.col(name)).alias(name) for name in ("key", "sequence", *_PLACE)]
    return each.groupBy("audit", "finding", *which).agg(F.count("*").alias("number"))


def judge(found: DataFrame, audits: int, ledger: str) -> list[Result]:
    """Returns the result of each audit.

    Args:
        found: Of :func:`find`; read three times.
        audits: How many there are.
        ledger: The ledger, for errors.

    Raises:
        OutboxError: The ledger has a record twice.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for row in found.groupBy("audit", "finding").agg(F.sum("number").alias("number")).collect():
        counts[row.audit, row.finding] = row.number
    in_order = Window.partitionBy("audit", "finding").orderBy(*_PLACE, "key", "sequence")
    examples: dict[tuple[int, str], list[RecordName]] = {}
    for row in _first(found.where(F.col("key").isNotNull()), in_order):
        examples.setdefault((row.audit, row.finding), []).append((row.key, row.sequence))
    for audit in range(audits):
        for key, sequence in examples.get((audit, TWICE), ()):
            raise OutboxError(f"ledger {ledger}: key {key!r}: sequence {sequence} was committed twice")
    reappeared = found.where(F.col("finding") == Defect.REAPPEARED).groupBy("audit", "key").count()
    most_first = Window.partitionBy("audit").orderBy(F.desc("count"), "key")
    most: dict[int, list[tuple[str, int]]] = {}
    for row in _first(reappeared, most_first):
        most.setdefault(row.audit, []).append((row.key, row["count"]))
    return [
        Result(
            sent=counts[audit, DELIVERED] + counts[audit, Defect.LOST],
            delivered=counts[audit, DELIVERED],
            foreign=counts[audit, Defect.FOREIGN],
            overtaken=counts[audit, Defect.OVERTAKEN],
            reappeared=counts[audit, Defect.REAPPEARED],
            repeated=counts[audit, REPEATED],
            duplicates=counts[audit, Defect.DUPLICATES],
            most_reappeared=tuple(most.get(audit, ())),
            examples={defect: tuple(examples.get((audit, defect), ())) for defect in Defect},
        )
        for audit in range(audits)
    ]


def _first(rows: DataFrame, window: Any) -> list[Any]:
    """Returns the first few of each part of a window, in order."""
    numbered = rows.withColumn("nth", F.row_number().over(window)).where(F.col("nth") <= EXAMPLES)
    return numbered.orderBy("nth").collect()
