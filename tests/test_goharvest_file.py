"""goharvest's own files: both variants of reaper.yaml, with other addresses and credentials."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from .harvesters import Fleet, Measure, until
from .shop import INSERT, Shop

GOHARVEST = Path(__file__).with_name("goharvest")
DATA_SOURCE = "host=localhost port=5432 user=postgres password= dbname=postgres"

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBejCCAR+gAwIBAgIUYqhBtDS1WBc65oqzrVlqm5E7L34wCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyMTExMzE0M1oYDzIxMjYxMDI4MTEz
MTQzWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAT5laNHCST2xCjQ/besVPgefK0sLTZ59yg4p2wDUnzPtFCuRNU59PAlJMZoHkHt
YJD8bj4+dUUvj9DU65S2ESa4o1MwUTAdBgNVHQ4EFgQUSp3BceyENcDm9XjcNGCQ
rYhOzs4wHwYDVR0jBBgwFoAUSp3BceyENcDm9XjcNGCQrYhOzs4wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAzb7CuOPg16P0KCQhTdyYKzsZdNKC
HwY+pIts0GfehJUCIQCn1TWv21QNofyGxuF1mwTD3MgCq0SvImWWemmMSB1GDw==
-----END CERTIFICATE-----
"""
"""The certificate of an authority that has signed nothing."""

Content = tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]
Row = tuple[str, str | None, Sequence[str], Sequence[str | None]]

ROWS: list[Row] = [
    ("plain", "value", ["name"], ["content"]),
    ("ключ-鍵-🔑", "wért ✓ 日本語 🚀 e\u0301", ["überschrift", "emoji"], ["äöü", "🎉"]),
    (
        "quotes ' \" `",
        'it\'s "quoted" \\ back\\slash {} $1 %s\n\ttabs\r\n',
        ["q'\"", "{a,b}"],
        ["'\"\\", "NULL"],
    ),
    ("", "the empty key", [], []),
    ("", "the empty key again", ["n"], ["2"]),
    ("k" * 100, "a key of 100 characters", [], []),
    ("鍵" * 100, "a key of 300 bytes", [], []),
    ("long", "x" * 10_000, [], []),
    ("long", "€" * 10_000, [], []),
    ("tombstone", None, ["why"], ["deleted"]),
    ("blank", "", [""], [""]),
    ("twice", "v", ["same", "other", "same", "same"], ["1", "2", "3", "1"]),
    ("null-header", "v", ["h"], [None]),
    ("many", "v", [f"h{number % 7}" for number in range(50)], [f"value {number}" for number in range(50)]),
    *(("ordered", f"{number}", ["n"], [f"{number}"]) for number in range(500)),
    *((f"key-{number % 40}", f"{number}", [], []) for number in range(1500)),
]


def as_sent(row: Row) -> Content:
    key, value, names, values = row
    headers = [(n, None if v is None else v.encode()) for n, v in zip(names, values, strict=True)]
    return key.encode(), None if value is None else value.encode(), headers


def reaper_file(name: str, shop: Shop) -> str:
    """Returns goharvest's file with our servers in place of its own."""
    text = (GOHARVEST / name).read_text().replace(DATA_SOURCE, shop.dsn)
    return re.sub(r"localhost:909\d", shop.kafka.bootstrap, text)


def password(shop: Shop) -> str:
    return str(conninfo_to_dict(shop.dsn)["password"])


@pytest.mark.parametrize(
    "engine", ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_goharvests_file_harvests_its_table(shop: Shop, fleet: Fleet, measure: Measure, engine: str) -> None:
    with psycopg.connect(shop.dsn) as connection, connection.cursor() as cursor:
        cursor.executemany(INSERT, [(shop.topic, *row) for row in ROWS])
    options = [] if engine == "spark" else ["--engine", engine]
    reaper = fleet.launch("reaper", reaper_file("reaper.yaml", shop), *options)
    acquired = reaper.wait_for("leader acquired", 150)
    shop.wait_until_harvested(60)
    measure("the program's start to leader acquired", acquired.at - reaper.started)
    measure(f"leader acquired to {len(ROWS)} records gone", time.time() - acquired.at)
    measure("SIGTERM to the end of the process", reaper.leave())
    until(lambda: not reaper.family(), "the JVM ends with its program", 120)
    assert password(shop) not in reaper.log.read_text()

    found = [(message.key(), message.value(), list(message.headers() or [])) for message in shop.messages()]
    expected = list(map(as_sent, ROWS))
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    for key in {key for key, *_ in expected}:
        assert [each for each in found if each[0] == key] == [each for each in expected if each[0] == key]


@pytest.mark.slow
def test_goharvests_secure_file_says_what_a_plaintext_broker_lacks(
    tmp_path: Path, shop: Shop, fleet: Fleet
) -> None:
    (tmp_path / "ca-cert.pem").write_text(CERTIFICATE)
    reaper = fleet.launch("reaper", reaper_file("reaper_secure.yaml", shop))
    assert reaper.wait(120) == 69
    said = reaper.log.read_text()
    assert f"cannot reach Kafka at {shop.kafka.bootstrap}" in said, said
    assert "SSL handshake failed" in said, said
    assert "PLAINTEXT" in said, said
    assert "alice-secret" not in said
    assert password(shop) not in said


def test_goharvests_secure_file_harvests_where_nothing_is_secured(shop: Shop, fleet: Fleet) -> None:
    """Its leader topic is one of Kafka's internal topics, to which no client may write."""
    with psycopg.connect(shop.dsn) as connection:
        connection.execute(INSERT, (shop.topic, *ROWS[1]))
    plain = [
        line
        for line in reaper_file("reaper_secure.yaml", shop).splitlines()
        if not re.match(r"\s+(sasl|ssl|security)\.", line)
    ]
    reaper = fleet.launch("reaper", "\n".join(plain), "--engine", "inline")
    reaper.wait_for("leader acquired", 60)
    shop.wait_until_harvested(60)
    assert [message.key() for message in shop.messages()] == [ROWS[1][0].encode()]
    reaper.leave()
