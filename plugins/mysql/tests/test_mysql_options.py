"""Data sources and options, without a server."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from typing import Any

import pymysql
import pytest
from outbox_api import ConfigError, DriverError, Record, Seam, find
from outbox_api.portable import ErrorKind
from outbox_mysql import MySqlDialect, MySqlIdiom, MySqlOptions
from outbox_mysql.options import DataSource


def test_finding_the_driver_loads_no_database_driver() -> None:
    code = (
        "import sys; from outbox_api import Seam, find; d = find(Seam.DIALECT, 'mysql'); "
        "d.create(d.options()).ddl(); d.insert('outbox', {}); print('pymysql' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql://u:p@h:3307/shop", ("MySQL", "h", 3307, "u", "p", "shop", {})),
        ("mariadb://h/shop", ("MariaDB", "h", 0, "", "", "shop", {})),
        ("mysql+pymysql://u@[::1]/shop", ("MySQL", "::1", 0, "u", "", "shop", {})),
        ("mysql://a%40b:p%2F%C3%A9%25@h/my%20shop", ("MySQL", "h", 0, "a@b", "p/é%", "my shop", {})),
        ("mysql://u:p:@@h/shop", ("MySQL", "h", 0, "u", "p:@", "shop", {})),
        ("mysql:///shop?unix_socket=/run/m", ("MySQL", "", 0, "", "", "shop", {"unix-socket": "/run/m"})),
        ("mysql:///?read-default-file=~/my", ("MySQL", "", 0, "", "", "", {"read-default-file": "~/my"})),
        ("mysql://h/s?ssl_ca=/ca.pem&charset=utf8mb4", ("MySQL", "h", 0, "", "", "s", {"ssl-ca": "/ca.pem"})),
    ],
)  # fmt: skip
def test_addresses(text: str, expected: tuple[Any, ...]) -> None:
    assert DataSource.parse(text) == DataSource(*expected)


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", "PREFERRED"),
        ("?ssl-ca=/ca.pem", "VERIFY_CA"),
        ("?ssl-mode=verify_identity", "VERIFY_IDENTITY"),
        ("?ssl-ca=/ca.pem&ssl-mode=REQUIRED", "REQUIRED"),
    ],
)
def test_who_names_an_authority_wants_it_verified(query: str, mode: str) -> None:
    assert DataSource.parse(f"mysql://h/shop{query}").tls == mode


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_source": "host=h password=s3cret"}, "begin with mysql:// or mariadb://"),
        ({"data_source": "mysql://u:s3cret/x@h/shop"}, "percent-encoded"),
        ({"data_source": "mysql://u:s3cret#x@h/shop"}, "percent-encoded"),
        ({"data_source": "mysql://u:s3cret@[h/shop"}, "percent-encoded"),
        ({"data_source": "mysql://u:s3cret@h"}, "names no database"),
        ({"data_source": "mysql://h/shop?ssl-modus=REQUIRED"}, "did you mean 'ssl-mode'"),
        ({"data_source": "mysql://h/shop?nonsense=1"}, "known are"),
        ({"data_source": "mysql://h/shop?ssl-mode=maybe"}, "VERIFY_CA"),
        ({"data_source": "mysql://h/shop?charset=latin1"}, "utf8mb4"),
        ({"data_source": "mysql://h/shop?ssl-key=/k.pem"}, "ssl-cert"),
        ({"lock_timeout": 0.0}, "lock_timeout"),
        ({"idle_timeout": -1.0}, "idle_timeout"),
        ({"value_type": "json"}, "text or bytes"),
        ({"table": "a.b.c"}, "not a table name"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        MySqlOptions(**options)
    shown = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in shown.partition("ConfigError:")[2]


def test_options_are_picklable_and_keep_the_data_source_to_themselves() -> None:
    options = MySqlOptions(data_source="mysql://u:s3cret@h/shop")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "s3cret" not in f"{options!r} {options.source!r} {MySqlDialect(options).address}"


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    dialect = MySqlDialect(MySqlOptions(data_source="mysql://h/shop?ssl-ca=/nowhere/ca.pem"))
    with pytest.raises(DriverError, match=r"/nowhere/ca\.pem") as caught:
        dialect.connect()
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("number", "error_kind"),
    [
        (2013, ErrorKind.TRANSIENT),
        (1213, ErrorKind.ROLLED_BACK),
        (1205, ErrorKind.LOCK_TIMEOUT),
        (1290, ErrorKind.TRANSIENT),
        (1047, ErrorKind.TRANSIENT),
        (4031, ErrorKind.TRANSIENT),
        (3032, ErrorKind.TRANSIENT),
        (9001, ErrorKind.TRANSIENT),
        (9002, ErrorKind.TRANSIENT),
        (1045, ErrorKind.ACCESS_DENIED),
        (3118, ErrorKind.ACCESS_DENIED),
        (1146, ErrorKind.NO_TABLE),
        (1062, ErrorKind.EXISTS),
        (1049, ErrorKind.PERMANENT),
        (1665, ErrorKind.PERMANENT),
    ],
)
def test_errors_are_told_apart_by_their_number(number: int, error_kind: ErrorKind) -> None:
    assert MySqlIdiom().error_kind(pymysql.OperationalError(number, "…")) is error_kind


@pytest.mark.parametrize(
    ("number", "state", "error_kind"),
    [
        (9999, "08XYZ", ErrorKind.TRANSIENT),
        (9999, "25XYZ", ErrorKind.TRANSIENT),
        (9999, "40XYZ", ErrorKind.TRANSIENT),
        (9999, "57XYZ", ErrorKind.TRANSIENT),
        (9999, "70XYZ", ErrorKind.TRANSIENT),
        (9999, "HY000", ErrorKind.PERMANENT),
        (9999, "42000", ErrorKind.PERMANENT),
        (1045, "25000", ErrorKind.ACCESS_DENIED),
        (1153, "08S01", ErrorKind.PERMANENT),
    ],
)
def test_a_number_that_nobody_knows_is_told_by_its_state(
    number: int, state: str, error_kind: ErrorKind
) -> None:
    error = pymysql.OperationalError(number, "…")
    error.sqlstate = state
    assert MySqlIdiom().error_kind(error) is error_kind


def test_the_insert_lets_the_drivers_send_many_rows_at_once() -> None:
    insert = find(Seam.DIALECT, "mysql").insert
    assert insert is not None
    assert insert('shop."out`box"', {}).sql == (
        "INSERT INTO `shop`.`out``box`"
        " (kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
        " VALUES ({kafka_topic}, {kafka_key}, {kafka_value}, {kafka_header_keys}, {kafka_header_values})"
    )
    of_cluster = insert("outbox", {"cluster`id": 2})
    assert of_cluster.sql.endswith(
        "kafka_header_values, `cluster``id`) VALUES ({kafka_topic}, {kafka_key},"
        " {kafka_value}, {kafka_header_keys}, {kafka_header_values}, {constant0})"
    )
    assert of_cluster.bind(Record("t", "k", "v"))["constant0"] == 2


@pytest.mark.parametrize(("statement", "lock", "longest"), [(30.0, 5.0, 300.0), (1.0, 60.0, 61.0)])
def test_a_call_may_wait_for_a_lock_as_long_as_the_options_permit(
    statement: float, lock: float, longest: float
) -> None:
    options = MySqlOptions(statement_timeout=statement, lock_timeout=lock)
    assert MySqlDialect(options).longest_call() == longest
