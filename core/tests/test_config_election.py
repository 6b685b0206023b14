"""The default group: the same for the processes of one outbox, and different for two outboxes."""

from dataclasses import dataclass
from typing import Any

import pytest
from outbox_api import Seam
from outbox_core.config import parse
from outbox_core.settings import Choice
from outbox_core.settings.election import default_leader_group, default_leader_topic, with_group

from .fakes import FakeTable


@dataclass(frozen=True)
class Options:
    leader_group_id: str | None = None
    leader_topic: str | None = None


@dataclass(frozen=True)
class Strange:
    """The options of an elector without groups."""

    place: str = "here"


def elected(options: Any, table: Any) -> Any:
    return with_group(Choice(Seam.ELECTOR, "any", options), table).options


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("dataSource: host=db dbname=shop", "dataSource: host = db dbname = shop"),
        ("dataSource: host=db dbname=shop", "dataSource: 'postgresql:///shop?host=db'"),
        ("dataSource: host=localhost", "dataSource: host=db"),
        ("outboxTable: outbox", "outboxTable: public.outbox"),
    ],
)
def test_spelling_has_no_part_in_the_group(one: str, other: str):
    options = [parse(f"harvest: {{{text}}}", "f.yaml", {}).harvest.elector.options for text in (one, other)]
    assert [each.leader_group_id for each in options] == [None, None]
    assert elected(options[0], FakeTable()) == elected(options[1], FakeTable())


def test_the_outbox_gives_the_name():
    assert elected(Options(), FakeTable()) == Options(
        "outbox-public.outbox-0123456789ab", "outbox-public.outbox-0123456789ab.neli"
    )


def test_two_outboxes_of_one_name_do_not_share_a_group():
    one, other = (elected(Options(), FakeTable(identity=identity)) for identity in ("a1", "a2"))
    assert one.leader_group_id != other.leader_group_id
    assert one.leader_topic != other.leader_topic


def test_a_topic_of_ones_own_stays():
    options = parse("harvest: {leaderTopic: mine}", "f.yaml", {}).harvest.elector.options
    completed = elected(options, FakeTable())
    assert (completed.leader_group_id, completed.leader_topic) == (
        "outbox-public.outbox-0123456789ab",
        "mine",
    )


@pytest.mark.parametrize("options", [Options("billing", "billing.neli"), Options("billing"), Strange(), None])
def test_who_needs_no_group_does_not_ask_the_database(options: object):
    table: Any = FakeTable()
    choice: Choice[Any] = Choice(Seam.ELECTOR, "any", options)
    assert with_group(choice, table) is choice
    assert table.asked == 0


def test_names_are_fit_for_kafka():
    group = default_leader_group('"My Schema".outbox' + "x" * 300, "0123456789ab")
    topic = default_leader_topic(group)
    assert len(topic) <= 249
    assert set(topic) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert group.startswith("outbox-My-Schema-.outbox")
    assert group.endswith("-0123456789ab")
    assert default_leader_topic("my app/name") == "my-app-name.neli"
