"""What Spark finds: the class ``DefaultSource``, for which nothing else of this package is imported."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from outbox_sdk import OutboxError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_outbox.snapshot import OutboxSnapshot
    from pyspark_outbox.stream import OutboxStream


class DefaultSource(DataSource):
    """The source ``outbox``: one outbox as a stream.

    Args:
        options: See docs/spark-source.md.

    Raises:
        ConfigError: An option is unknown or cannot be used.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from pyspark_outbox.options import read_options  # noqa: PLC0415 - Spark imports this class for others

        super().__init__(options)
        self._source = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Returns the source's name."""
        return "outbox"

    def schema(self) -> str:
        """Returns the columns; connects to nothing."""
        from pyspark_outbox.columns import SCHEMA  # noqa: PLC0415 - as above

        return SCHEMA

    def reader(self, schema: StructType) -> OutboxSnapshot:
        """Returns what waits; connects to nothing."""
        from pyspark_outbox.snapshot import OutboxSnapshot  # noqa: PLC0415 - as above

        del schema
        return OutboxSnapshot(self._source)

    def streamReader(self, schema: StructType) -> OutboxStream:  # noqa: N802 - PySpark's
        """Returns the stream; connects to nothing.

        Raises:
            OutboxError: PySpark is too old.
        """
        try:
            from pyspark_outbox.stream import OutboxStream  # noqa: PLC0415 - as above
        except ImportError as error:
            raise OutboxError(
                f"outbox as a stream needs PySpark 4.2 or later, and PyArrow: {error}"
            ) from error

        del schema
        return OutboxStream(self._source)
