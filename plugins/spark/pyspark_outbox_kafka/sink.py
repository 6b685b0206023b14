"""What Spark finds: the class ``DefaultSource``, for which nothing else of this package is imported."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from outbox_api import OutboxError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_outbox_kafka.writer import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """The sink ``outbox-kafka``: publishes the rows of a stream into Kafka, once.

    Args:
        options: See docs/spark.md.

    Raises:
        ConfigError: An option is unknown or cannot be used.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from pyspark_outbox_kafka.options import read_options  # noqa: PLC0415 - Spark imports this class for others

        super().__init__(options)
        self._options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Returns the sink's name."""
        return "outbox-kafka"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - PySpark's
        """Returns the writer of a batch of a stream; connects to nothing.

        Raises:
            ConfigError: The columns are not those of messages.
            OutboxError: PySpark is too old.
        """
        from pyspark_outbox_kafka.columns import read_schema  # noqa: PLC0415 - as above

        del overwrite
        try:
            from pyspark_outbox_kafka.writer import StreamWriter  # noqa: PLC0415 - as above
        except ImportError as error:
            raise OutboxError(f"the sink needs PySpark 4.2 or later, and PyArrow: {error}") from error
        return StreamWriter(self._options, read_schema(schema, self._options.topic))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Returns the writer of a batch query; connects to nothing. Raises as :meth:`streamWriter`."""
        from pyspark_outbox_kafka.columns import read_schema  # noqa: PLC0415 - as above
        from pyspark_outbox_kafka.writer import BatchWriter  # noqa: PLC0415 - as above

        del overwrite
        return BatchWriter(self._options, read_schema(schema, self._options.topic))
