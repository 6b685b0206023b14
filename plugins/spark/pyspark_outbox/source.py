"""What Spark finds: the class ``DefaultSource``, for which nothing else of this package is imported."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from outbox_api import ConfigError, OutboxError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader

    from pyspark_outbox.options import SourceOptions
    from pyspark_outbox.stash import BatchStash, StreamStash
    from pyspark_outbox.stream import OutboxStream


class DefaultSource(DataSource):
    """The source ``outbox``: one outbox as a stream; what waits in it, is dead, or kept, as a batch.

    And the sink: rows of a stream, or of a batch, become rows of an outbox.

    Args:
        options: See docs/spark.md.

    Raises:
        ConfigError: An option is unknown or cannot be used.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = options
        self._streams = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Of the source of a stream that is planned, executors get only what names it in errors."""
        if self._streams:
            from pyspark_outbox.executors import handed_over  # noqa: PLC0415 - as below

            return handed_over()
        return super().__reduce_ex__(protocol)

    @cached_property
    def _source(self) -> SourceOptions:
        from pyspark_outbox.options import read_options  # noqa: PLC0415 - Spark imports this class for others

        return read_options(self._given)

    @classmethod
    def name(cls) -> str:
        """Returns the name of source and sink."""
        return "outbox"

    def schema(self) -> str:
        """Returns the columns; connects to nothing."""
        from pyspark_outbox.columns import KEPT_SCHEMA, LETTER_SCHEMA, SCHEMA  # noqa: PLC0415 - as above

        return {"dead-letters": LETTER_SCHEMA, "kept": KEPT_SCHEMA}.get(self._source.of, SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns what waits, the dead letters, or the kept records; connects to nothing."""
        from pyspark_outbox.snapshot import OutboxKept, OutboxLetters, OutboxSnapshot  # noqa: PLC0415 - as above

        del schema
        if self._source.starting != "waiting":
            raise ConfigError(
                "'startingOffsets' is an option of streams; of=kept reads what is kept as a batch"
            )
        match self._source.of:
            case "dead-letters":
                return OutboxLetters(self._source)
            case "kept":
                return OutboxKept(self._source)
            case _:
                return OutboxSnapshot(self._source)

    def streamReader(self, schema: StructType) -> OutboxStream:  # noqa: N802 - PySpark's
        """Returns the stream; connects to nothing.

        Raises:
            ConfigError: The options ask for something else than what waits.
            OutboxError: PySpark is too old.
        """
        if self._source.of != "waiting":
            raise ConfigError(
                "a stream reads what waits in an outbox; read what is "
                f"{self._source.of} as a batch, with spark.read; a stream begins with what is kept by "
                "startingOffsets=kept"
            )
        try:
            from pyspark_outbox.stream import OutboxStream  # noqa: PLC0415 - as above
        except ImportError as error:
            raise OutboxError(
                f"outbox as a stream needs PySpark 4.2 or later, and PyArrow: {error}"
            ) from error

        del schema
        self._streams = True
        return OutboxStream(self._source)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamStash:  # noqa: N802 - PySpark's
        """Returns the writer of a stream's batches; connects to nothing.

        Raises:
            ConfigError: An option cannot be used, or the columns are not those of records.
        """
        from pyspark_outbox.options import read_stash_options  # noqa: PLC0415 - as above
        from pyspark_outbox.stash import StreamStash, record_columns  # noqa: PLC0415 - as above

        del overwrite
        options = read_stash_options(self._given)
        return StreamStash(options, record_columns(schema, options.topic))

    def writer(self, schema: StructType, overwrite: bool) -> BatchStash:
        """Returns the writer of a batch query; connects to nothing. Raises as :meth:`streamWriter`."""
        from pyspark_outbox.options import read_stash_options  # noqa: PLC0415 - as above
        from pyspark_outbox.stash import BatchStash, record_columns  # noqa: PLC0415 - as above

        if overwrite:
            raise ConfigError("an outbox is only added to: write with mode('append')")
        options = read_stash_options(self._given)
        return BatchStash(options, record_columns(schema, options.topic))
