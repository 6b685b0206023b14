"""Without a ``leaderGroupID``, the harvesters of one outbox compete, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from outbox_servers.services import Postgres as Server
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .harvesters import Fleet, Harvester, until
from .shop import Shop
from .test_sqlite_end_to_end import Trial
from .test_takeover import ACQUIRED, PATIENT

pytestmark = pytest.mark.slow

GROUP = "election: group '"


def start(fleet: Fleet, name: str, **harvest: Any) -> Harvester:
    """Starts a harvester without a group in its configuration, which loses no lease on a busy machine."""
    return fleet.start(name, elector=PATIENT, leaderGroupID=None, **harvest)


def group(harvester: Harvester) -> str:
    """Returns the name of a harvester's group, from its log."""
    return harvester.wait_for(GROUP, 60).text.partition(GROUP)[2].partition("'")[0]


def longest_wait(harvester: Harvester) -> float:
    """Returns for how many seconds at most a harvester said that it lets its rival lead."""
    said = re.findall(r"this one again in ([\d.]+) s", harvester.log.read_text(errors="replace"))
    return max(map(float, said), default=0)


def waits_for(harvester: Harvester, seconds: float) -> bool:
    """Returns whether a harvester has said that it lets its rival lead for so long."""
    return longest_wait(harvester) >= seconds


def blanks(dsn: str) -> str:
    return " ".join(f"{name} = '{value}'" for name, value in reversed(conninfo_to_dict(dsn).items()))


def query(dsn: str) -> str:
    return "postgresql://?" + "&".join(f"{name}={value}" for name, value in conninfo_to_dict(dsn).items())


@pytest.mark.parametrize(
    ("spell", "table"),
    [(blanks, '"outbox"'), (query, "public.outbox")],
    ids=["blanks", "query"],
)
def test_two_spellings_of_one_outbox_compete(
    shop: Shop, fleet: Fleet, spell: Callable[[str], str], table: str
) -> None:
    leader = start(fleet, "a")
    leader.wait_for(ACQUIRED, 120)
    standby = start(fleet, "b", dataSource=spell(shop.dsn), outboxTable=table)
    standby.wait_for("joined the election", 60)
    fleet.group = group(standby)
    assert group(leader) == fleet.group
    until(lambda: fleet.members() == 2, "both are in one group", 60)
    shop.stash(200, keys=20)
    shop.wait_until_harvested(60)
    assert standby.find(ACQUIRED) is None
    assert leader.find("leader fenced") is None
    leader.leave()
    standby.wait_for(ACQUIRED, 60)
    shop.stash(200, keys=20, start=201)
    shop.wait_until_harvested(60)


def test_two_databases_under_one_address_are_both_harvested(
    shop: Shop, fleet: Fleet, postgres_server: Server
) -> None:
    """Like ``localhost`` on two machines: the same text, but two databases."""
    place = conninfo_to_dict(shop.dsn)
    text = make_conninfo("", **{name: value for name, value in place.items() if name != "dbname"})
    name = f"other_{place['dbname']}"
    other = Shop(postgres_server.create_database(name), shop.kafka, f"{shop.topic}-other")
    try:
        other.open()
        first = start(fleet, "a", dataSource=text, environment={"PGDATABASE": str(place["dbname"])})
        second = start(fleet, "b", dataSource=text, environment={"PGDATABASE": name})
        for harvester in (first, second):
            harvester.wait_for(ACQUIRED, 120)
        assert group(first) != group(second)
        for each in (shop, other):
            each.stash(100, keys=10)
        for each in (shop, other):
            each.wait_until_harvested(60)
        first.leave()
        second.leave()
        assert [each.find("leader fenced") for each in (first, second)] == [None, None]
    finally:
        fleet.close()
        postgres_server.drop_database(name)


def test_check_names_the_group_that_a_start_joins(tmp_path: Path, kafka_bootstrap: str, topic: str) -> None:
    trial = Trial(tmp_path, kafka_bootstrap, topic, elector=PATIENT)
    trial.tell("init")
    [found] = [each for each in trial.tell("check")["findings"] if each["subject"] == "leader group"]
    harvester = Harvester("a", trial.settings)
    try:
        assert found["message"].startswith(f"'{group(harvester)}' ")
        harvester.wait_for(ACQUIRED, 60)
        harvester.leave()
    finally:
        harvester.close()


def test_two_groups_for_one_outbox_are_told_and_take_the_fence_from_each_other_more_and_more_rarely(
    shop: Shop, fleet: Fleet
) -> None:
    one, other = [fleet.start(name, elector=PATIENT, leaderGroupID=f"{shop.topic}-{name}") for name in "ab"]
    told = "leads this outbox by the election neli-kafka"
    with shop.selling():
        for each, theirs in ((one, other), (other, one)):
            line = each.wait_for(told, 120)
            assert f"'{theirs.name}' leads" in line.text
            assert f"{shop.topic}-{theirs.name}" in line.text
            assert f"{shop.topic}-{each.name}" in line.text
            until(partial(waits_for, each, 8), "longer waits", 120)
        found = one.outbox("check")["findings"]
        assert sum(each.count("leader fenced") for each in (one, other)) <= 12
    rivals = [each for each in found if each["subject"] == "election"]
    if rivals:  # otherwise the one itself leads at present
        assert rivals[0]["level"] == "warning"
        assert "leaderGroupID" in rivals[0]["cure"]
    shop.wait_until_harvested(60)
