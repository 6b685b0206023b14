"""Several outboxes in one file: what they have in common, what is their own, and what is wrong."""

from __future__ import annotations

import pytest
from outbox_api import ConfigError
from outbox_core.config import parse
from outbox_core.settings import Delivery, Settings

COMMON = """
harvest:
  name: one
  engine: inline
  dataSource: host=common
  elector: {driver: lease, sessionTimeout: 4s}
  limits: {sendConcurrency: 2, queueTimeout: 20s}
"""


def several(outboxes: str, common: str = COMMON, **overrides: str) -> Settings:
    text = f"{common}outboxes:\n{outboxes}"
    return parse(text, "f.yaml", {}, {key.replace("_", "."): value for key, value in overrides.items()})


def told(outboxes: str, common: str = COMMON) -> str:
    with pytest.raises(ConfigError) as caught:
        several(outboxes, common)
    return str(caught.value)


def test_an_outbox_has_what_is_common_unless_it_says_otherwise():
    settings = several("""
  orders: {outboxTable: orders, limits: {sendConcurrency: 4}}
  payments:
    dialect: {driver: mysql, dataSource: "mysql://shop@host/payments"}
    delivery: exactly-once
    elector: {sessionTimeout: 6s}
  others: {outboxTable: others, elector: static}
""")
    assert settings.several
    orders, payments, others = settings.outboxes
    assert [each.label for each in settings.outboxes] == ["orders", "payments", "others"]
    assert {each.name for each in settings.outboxes} == {"one"}
    assert (orders.limits.send_concurrency, orders.limits.queue_timeout) == (4, 20.0)
    assert orders.elector.options.session_timeout == 4.0
    assert orders.elector.options.lease.args[0] == orders.dialect, "each lease is in its own database"
    assert (payments.dialect.driver, payments.delivery) == ("mysql", Delivery.EXACTLY_ONCE)
    assert (payments.elector.driver, payments.elector.options.session_timeout) == ("lease", 6.0)
    assert (payments.limits.send_concurrency, payments.outbox) == (2, "outbox")
    assert others.elector.driver == "static"
    with pytest.raises(ConfigError, match="several outboxes"):
        _ = settings.harvest


def test_all_outboxes_have_one_process_name_when_the_file_has_none():
    settings = several("  a: {outboxTable: a}\n  b: {outboxTable: b}\n", "harvest: {engine: inline}\n")
    assert len({each.name for each in settings.outboxes}) == 1
    assert settings.process.engine.driver == "inline"


def test_the_command_line_overrides_what_each_outbox_says():
    settings = several("  a: {outboxTable: a, delivery: exactly-once}\n", harvest_delivery="at-least-once")
    assert [each.delivery for each in settings.outboxes] == [Delivery.AT_LEAST_ONCE]


def test_a_star_in_the_table_makes_a_template():
    settings = several('  tenants: {outboxTable: "tenant_*.outbox", delivery: exactly-once}\n')
    assert settings.outboxes == ()
    [template] = settings.templates
    assert template.pattern == "tenant_*.outbox"
    made = template.settings_for("tenant_7.outbox")
    assert (made.label, made.outbox) == ("tenants/tenant_7.outbox", "tenant_7.outbox")
    assert made.dialect.options.table == "tenant_7.outbox"
    assert (made.delivery, made.name) == (Delivery.EXACTLY_ONCE, "one")
    assert template.probe.dialect.options.table == "tenant_x.outbox"


@pytest.mark.parametrize(
    ("outboxes", "words"),
    [
        ("  []\n", "expected a mapping: a label for each outbox"),
        ("\n", "expected a mapping: a label for each outbox"),
        ("  a b: {}\n", "a label consists of letters, digits"),
        ("  a: text\n", "outboxes.a: expected a mapping of keys"),
        ("  a: {engine: inline}\n", "outboxes.a.engine: belongs to the process: write it as harvest.engine"),
        ("  a: {name: x}\n", "outboxes.a.name: belongs to the process"),
        ("  a: {limits: {sendConcurency: 1}}\n", "did you mean 'sendConcurrency'?"),
        ("  a: {outboxTable: x}\n  b: {outboxTable: x}\n", "outboxes.b: is the same table in the same datab"),
        (
            "  a: {outboxTable: x}\n  b: {outboxTable: x, dialect: {lockTimeout: 7s}}\n",
            "outboxes.b: is the same table in the same database",
        ),
        ('  a: {outboxTable: "x*", delivery: never}\n', "outboxes.a.delivery"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(outboxes: str, words: str):
    message = told(outboxes)
    assert words in message
    assert "f.yaml:" in message


def test_one_election_for_all_is_refused():
    message = told("  a: {outboxTable: a}\n", "harvest: {leaderGroupID: x, elector: {leaderTopic: y}}\n")
    assert "harvest.leaderGroupID: would be the same for all outboxes" in message
    assert "harvest.elector.leaderTopic: would be the same for all outboxes" in message


def test_what_is_wrong_with_the_common_part_is_told_once():
    message = told(
        "  a: {outboxTable: a}\n  b: {outboxTable: b}\n", "harvest: {limits: {drainInterval: 5x}}\n"
    )
    assert message.count("drainInterval") == 1
