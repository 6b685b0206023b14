"""What Spark finds: the class ``DefaultSource``, for which nothing else of this package is imported."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from outbox_api import ConfigError, OutboxError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader

    from pyspark_outbox.stream import OutboxStream


class DefaultSource(DataSource):
    """The source ``outbox``: one outbox as a stream; what waits in it, or its dead letters, as a batch.

    Args:
        options: See docs/spark-source.md.

    Raises:
        ConfigError: An option is unknown or cannot be used.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from pyspark_outbox.options import Of, read_options  # noqa: PLC0415 - Spark imports this class for others

        super().__init__(options)
        self._source = read_options(options)
        self._letters = self._source.of is Of.DEAD_LETTERS

    @classmethod
    def name(cls) -> str:
        """Returns the source's name."""
        return "outbox"

    def schema(self) -> str:
        """Returns the columns; connects to nothing."""
        from pyspark_outbox.columns import LETTER_SCHEMA, SCHEMA  # noqa: PLC0415 - as above

        return LETTER_SCHEMA if self._letters else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns what waits, or the dead letters; connects to nothing."""
        from pyspark_outbox.snapshot import OutboxLetters, OutboxSnapshot  # noqa: PLC0415 - as above

        del schema
        return OutboxLetters(self._source) if self._letters else OutboxSnapshot(self._source)

    def streamReader(self, schema: StructType) -> OutboxStream:  # noqa: N802 - PySpark's
        """Returns the stream; connects to nothing.

        Raises:
            ConfigError: The options ask for dead letters.
            OutboxError: PySpark is too old.
        """
        if self._letters:
            raise ConfigError(
                "a stream reads what waits in an outbox; read its dead letters as a batch, with spark.read"
            )
        try:
            from pyspark_outbox.stream import OutboxStream  # noqa: PLC0415 - as above
        except ImportError as error:
            raise OutboxError(
                f"outbox as a stream needs PySpark 4.2 or later, and PyArrow: {error}"
            ) from error

        del schema
        return OutboxStream(self._source)
