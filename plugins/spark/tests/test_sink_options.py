"""What options and columns of the sink ``outbox-kafka`` mean, and which are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from outbox_api import ConfigError, DriverError, MarkedRecord
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark_outbox_kafka.columns import messages, read_schema
from pyspark_outbox_kafka.options import read_options
from pyspark_outbox_kafka.sums import NO_ROWS, Sums, Tally

BROKERS = {"kafka.bootstrap.servers": "broker:9092"}
SECRET = "k9-secret"


def settings(**kafka: str) -> dict[str, object]:
    """Returns librdkafka's settings; names have underscores instead of dots."""
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    found = dict(read_options({**BROKERS, **given}).kafka)
    assert found.pop("bootstrap.servers") == "broker:9092"
    return found


def test_settings_of_java_become_those_of_librdkafka() -> None:
    assert settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=(
            "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
            f'  username="orders" password="{SECRET}\\"=;";'
        ),
        ssl_truststore_type="PEM",
        ssl_truststore_location="/ca.pem",
        ssl_keystore_type="PKCS12",
        ssl_keystore_location="/own.p12",
        max_request_size="5000000",
        buffer_memory="1048576",
        key_serializer="org.example.Serializer",
        acks="all",
        linger_ms="5",
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "orders",
        "sasl.password": f'{SECRET}"=;',
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/own.p12",
        "message.max.bytes": "5000000",
        "queue.buffering.max.kbytes": "1024",
        "acks": "all",
        "linger.ms": "5",
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("transactional_id", "mine", "must not be set"),
        ("enable_idempotence", "false", "must be true"),
        ("acks", "1", "must be 'all'"),
        ("ssl_truststore_location", f"/{SECRET}.jks", "'kafka.ssl.ca.location'"),
        ("ssl_keystore_location", f"/{SECRET}.jks", "PKCS12"),
        ("partitioner_class", f"org.{SECRET}", "'kafka.partitioner'"),
        ("sasl_jaas_config", f"com.sun.security.Krb5LoginModule required x={SECRET};", "sasl.username"),
        ("sasl_jaas_config", f'x.PlainLoginModule required password="{SECRET}";', "sasl.username"),
        ("buffer_memory", SECRET, "a number"),
    ],
)
def test_settings_without_a_counterpart_say_what_to_write(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        settings(**{name: value})
    assert SECRET not in str(raised.value)


def test_options_are_refused_that_cannot_be_used() -> None:
    for given, words in (
        ({}, "bootstrap.servers"),
        ({**BROKERS, "sinkNmae": "a"}, "no option 'sinkNmae'"),
        ({**BROKERS, "sinkName": "a b"}, "letters, digits"),
        ({**BROKERS, "replacesQuery": "a"}, "a 'sinkName', which is missing"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_options(given)
    password = {"kafka.sasl.password": SECRET}
    assert SECRET not in repr(read_options({**BROKERS, **password, "TOPIC": "a", "sinkname": "b"}))


TEXT, BYTES, NUMBER = StringType(), BinaryType(), IntegerType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": TEXT}, "'value' is missing"),
        ({"value": TEXT, "more": NUMBER}, "no column 'more'; there are topic, key, value"),
        ({"value": NUMBER}, "'value' is INT, and must be STRING or BINARY"),
        ({"value": TEXT, "partition": LongType()}, "'partition' is BIGINT, and must be INT"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        ({"value": TEXT, "headers": ArrayType(schema(name=TEXT, value=BYTES))}, "must be ARRAY"),
        ({"value": TEXT, "timestamp": TEXT}, "must be TIMESTAMP"),
        ({"value": TEXT}, "neither the option 'topic' nor a column"),
    ],
)
def test_columns_are_refused_that_are_not_those_of_messages(columns: dict[str, DataType], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_schema(schema(**columns), None if columns == {"value": TEXT} else "orders")
    assert words in str(raised.value)


def test_rows_become_messages_in_their_order() -> None:
    columns = read_schema(
        schema(topic=TEXT, key=BYTES, value=TEXT, partition=NUMBER, timestamp=TimestampType()), None
    )
    batch = pa.record_batch(
        {
            "topic": ["a"] * 1500,
            "key": pa.array([b"k", None] * 750, pa.binary()),
            "value": ["ä", None] * 750,
            "partition": pa.array([1, None] * 750, pa.int32()),
            "timestamp": pa.array([1_999, None] * 750, pa.timestamp("us", tz="UTC")),
        }
    )
    found = [record for some in messages(batch, columns, 7) for record in some]
    assert [record.id for record in found] == list(range(7, 1507))
    assert found[0] == MarkedRecord(7, "a", b"k", "ä".encode(), (), 1, 1)  # type: ignore[arg-type]
    assert found[1] == MarkedRecord(8, "a", None, None)  # type: ignore[arg-type]
    nowhere = pa.record_batch({name: batch[name] for name in batch.schema.names[1:]})
    nowhere = nowhere.add_column(0, "topic", pa.nulls(1500, pa.string()))
    with pytest.raises(DriverError, match="'topic' is null"):
        list(messages(nowhere, columns, 0))


def test_sums_do_not_depend_on_order_or_division_and_tell_rows_apart() -> None:
    rows = [
        MarkedRecord(0, "a", b"k", b"v"),  # type: ignore[arg-type]
        MarkedRecord(1, "a", b"kv", b""),  # type: ignore[arg-type]
        MarkedRecord(2, "a", None, b"kv"),  # type: ignore[arg-type]
        MarkedRecord(3, "a", b"", b"kv"),  # type: ignore[arg-type]
        MarkedRecord(4, "a", b"k", None),  # type: ignore[arg-type]
        MarkedRecord(5, "b", b"k", b"v"),  # type: ignore[arg-type]
        MarkedRecord(6, "a", b"k", b"v", [("h", b"1")]),  # type: ignore[arg-type]
        MarkedRecord(7, "a", b"k", b"v", [("h", None)]),  # type: ignore[arg-type]
        MarkedRecord(8, "a", b"k", b"v", (), 0),  # type: ignore[arg-type]
        MarkedRecord(9, "a", b"k", b"v", (), None, 1),  # type: ignore[arg-type]
    ]

    def sums(*rows: MarkedRecord) -> Sums:
        tally = Tally()
        tally.add(rows)
        return tally.sums

    assert len({sums(row) for row in rows}) == len(rows)
    assert sums(rows[0]) == sums(rows[0]._replace(id=99))
    assert sums(*rows) == sums(*rows[6:][::-1]) + sums(*rows[:6]) + NO_ROWS
    assert sums(*rows).count == len(rows)
    assert Sums.of(sums(*rows).written()) == sums(*rows)
