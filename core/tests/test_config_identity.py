"""The default names of competitors: the same for replicas of one service, different for two services."""

import pytest
from outbox_core.config.identity import default_leader_group, default_leader_topic

HERE = "host=db port=5432 user=app password=one dbname=shop sslmode=disable"


@pytest.mark.parametrize(
    "other",
    [
        "host=db port=5432 user=other password= dbname=shop",
        "user=app host=db port=5432 dbname=shop password='a b' connect_timeout=5",
        "host=DB port=5432 dbname=shop",
    ],
)
def test_credentials_and_order_do_not_split_a_group(other: str):
    assert default_leader_group(other, "outbox") == default_leader_group(HERE, "outbox")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HERE, HERE.replace("host=db", "host=db2")),
        (HERE, HERE.replace("dbname=shop", "dbname=billing")),
        (HERE, HERE.replace("5432", "5433")),
        ("postgresql://a:b@db/shop", "postgresql://a:b@db/billing"),
        ("/var/a.db", "/var/b.db"),
    ],
)
def test_two_databases_do_not_share_a_group(one: str, other: str):
    assert default_leader_group(one, "outbox") != default_leader_group(other, "outbox")


def test_two_tables_do_not_share_a_group():
    assert default_leader_group(HERE, "a.outbox") != default_leader_group(HERE, "b.outbox")


def test_a_url_without_its_credentials():
    one = default_leader_group("postgresql://app:secret@db:5432/shop", "outbox")
    assert one == default_leader_group("postgresql://other@db:5432/shop?sslmode=require", "outbox")


def test_names_are_fit_for_kafka():
    group = default_leader_group(HERE, '"My Schema".outbox' + "x" * 300)
    topic = default_leader_topic(group)
    assert len(topic) <= 249
    assert set(topic) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert default_leader_group(HERE, "outbox").startswith("outbox-outbox-")
    assert default_leader_topic("my app/name") == "my-app-name.neli"
