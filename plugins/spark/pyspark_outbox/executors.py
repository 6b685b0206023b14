"""What executors get of a stream and of its source, by its code: they need nothing of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import InputPartition

register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # PySpark has no types for it


def read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Returns the rows that a partition brings along; see :func:`.columns.packed`."""
    return iter(pa.ipc.open_stream(partition.value))


def name() -> str:
    """Returns the name of the source, which Spark shows in errors."""
    return "outbox"


def handed_over() -> tuple[Callable[[], Any], tuple[()]]:
    """Returns what is pickled in the place of a stream, and of its source."""
    return partial(SimpleNamespace, read=read, name=name), ()
