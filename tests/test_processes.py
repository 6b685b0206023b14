"""What is known of the processes, of latencies and topics, and of the history, whoever is asked."""

from __future__ import annotations

import json
import signal
from typing import Any
from urllib.request import urlopen

import pytest

from .alarms.front import ANY_PORT
from .harvesters import Fleet, Harvester, until
from .shop import Shop

LEASE = {"driver": "lease", "sessionTimeout": "4s"}
START = {"inline": 60.0, "spark": 150.0}


def ask(harvester: Harvester, path: str) -> Any:
    line = harvester.find("serving on http://")
    assert line is not None
    with urlopen(f"http://{line.text.rpartition('http://')[2].strip()}{path}", timeout=20) as answer:
        return json.loads(answer.read())


def roles(harvester: Harvester) -> dict[str, str]:
    return {
        each["name"]: "silent" if each["silent"] else each["role"]
        for each in ask(harvester, "/status")["processes"]
    }


def minutes(harvester: Harvester) -> dict[str, Any]:
    """Returns the points that are kept, by their times."""
    points = ask(harvester, "/api/history?span=quarter")["points"]
    return {
        each["at"]: each for each in points if each["at"].endswith(":00Z") and each["records"] is not None
    }


def has_latencies(points: dict[str, Any]) -> bool:
    return any((each["p99_seconds"] or 0) > 0 for each in points.values())


@pytest.mark.parametrize(
    ("delivery", "engine"),
    [
        pytest.param("at-least-once", "inline", marks=pytest.mark.slow),
        pytest.param("exactly-once", "spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_whoever_is_asked_knows_the_processes_and_the_history(
    shop: Shop, fleet: Fleet, delivery: str, engine: str
) -> None:
    options: dict[str, Any] = {"elector": LEASE, "http": {"listen": ANY_PORT}, "delivery": delivery}
    first = fleet.start("a", engine=engine, **options)
    first.wait_for("leader acquired", START[engine])
    second = fleet.start("b", **options)
    second.wait_for("joined the election", 60)
    until(lambda: roles(first) == roles(second) == {"a": "leads", "b": "stands-by"}, "both are seen", 60)
    with shop.selling():
        shop.wait_for_sales(300)
        until(lambda: ask(second, "/status")["topics"], "heartbeats tell of topics", 30)
        told = ask(second, "/status")
        [topic] = told["topics"]
        assert (topic["topic"], topic["failed"]) == (shop.topic, 0)
        assert 0 < topic["published"] <= shop.count()
        assert 0 < told["latency"]["p50_seconds"] <= told["latency"]["p99_seconds"] < 60
        until(lambda: has_latencies(minutes(second)), "a minute with records is kept", 190, pause=1.0)
    shop.wait_until_harvested(60)
    killed_at = first.kill()
    second.wait_for("leader acquired", 60, killed_at)
    until(lambda: roles(second) == {"a": "silent", "b": "leads"}, "the killed one is silent", 90)
    kept = minutes(second)
    third = fleet.start("c", **options)
    third.wait_for("joined the election", 60)
    until(lambda: roles(third).get("c") == "stands-by", "a third stands by", 60)
    again = minutes(third)
    assert kept.items() <= again.items(), "a new process tells the same"
    assert has_latencies(again)
    assert sum(each["published"] for each in ask(third, "/api/history")["topics"]) > 0
    until(
        lambda: ask(third, "/api/history")["takeovers"] >= 1, "the takeover is in the history", 120, pause=1.0
    )
    assert ask(third, "/api/history")["not_kept"] == ""
    second.send(signal.SIGTERM)
    assert second.wait(60) == 0
    until(lambda: "b" not in roles(third), "who has stopped is gone at once", 30)
