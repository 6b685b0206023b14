"""The Django shop: its own tests, and an order from its view to its consumer, on real servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

SHOP = Path(__file__).parent.parent / "examples" / "django_shop"
ORDERS = """
from django.core.management import call_command
call_command("migrate")
call_command("makemigrations", check=True, dry_run=True)
call_command("check", databases=["default"], fail_level="WARNING")
from store.orders import SoldOutError, place_order
for customer in ("ada", "bob"):
    for goods in ("tea", "gold", "cake"):
        try:
            place_order(customer, goods)
        except SoldOutError:
            pass
"""


@pytest.fixture
def environment(postgres_dsn: str, kafka_bootstrap: str, topic: str) -> dict[str, str]:
    named = conninfo_to_dict(postgres_dsn)
    keys = {
        "PGDATABASE": "dbname",
        "PGHOST": "host",
        "PGPORT": "port",
        "PGUSER": "user",
        "PGPASSWORD": "password",
    }
    found = {variable: str(named[key]) for variable, key in keys.items() if key in named}
    return {**os.environ, **found, "KAFKA": kafka_bootstrap, "ORDERS_TOPIC": topic}


def manage(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *arguments],
        cwd=SHOP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_orders_are_shipped_once(environment: dict[str, str], postgres_dsn: str, topic: str) -> None:
    assert "OK" in manage(environment, "test")
    manage(environment, "shell", "-c", ORDERS)
    manage(environment, "outbox", "init", "--topic", topic)
    command = [sys.executable, "manage.py", "outbox", "run"]
    with subprocess.Popen(command, cwd=SHOP, env=environment, stderr=subprocess.PIPE, text=True) as harvester:
        try:
            manage(environment, "ship", "--most", "4")
        finally:
            harvester.send_signal(signal.SIGINT)
            log = harvester.communicate(timeout=60)[1]
    assert harvester.returncode == 0, log
    with psycopg.connect(postgres_dsn) as connection:
        orders = connection.execute("SELECT id, goods FROM store_order ORDER BY 1").fetchall()
        assert [goods for _, goods in orders] == ["tea", "cake"] * 2
        shipped = 'SELECT "order", goods FROM store_shipment ORDER BY 1'
        assert connection.execute(shipped).fetchall() == orders
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
