"""The JSON side of kept records, replays and erasures, on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from outbox_api import DriverError
from outbox_console import replays as replays_module
from outbox_core import operations
from outbox_core.operations import Choice, Wanted, replaying
from outbox_core.settings import HarvestSettings, Settings
from outbox_testkit.proxy import Proxy
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .cli_runner import NOWHERE, until
from .http_server import VIEWER, serving
from .kept_site import DATABASES, keeping, keeping_for
from .test_cli_replay import ALICE as ON_THE_COMMAND_LINE
from .test_cli_replay import deliver, pace, stash, waiting
from .test_http_api import Checked

ADDRESS: dict[str, Any] = {"name": "x", "topics": ["orders*"], "since": "1h"}


@pytest.fixture(params=DATABASES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return keeping_for(request, tmp_path)


@pytest.fixture
def box(settings: Settings) -> HarvestSettings:
    return settings.harvest


@pytest.fixture
def api(settings: Settings) -> Iterator[Checked]:
    with serving(settings) as site:
        yield Checked(site)


def ended(api: Checked, name: str = "x") -> Any:
    """Waits until a replay is no longer under way in the process, and returns what is told of it."""

    def found() -> Any:
        return next(each for each in api.get("/api/replays")["replays"] if each["name"] == name)

    until(lambda: not found()["running"])
    return found()


def test_kept_records_are_counted_found_and_shown(api: Checked, box: HarvestSettings):
    assert api.get("/api/kept/days") == {"records": 0, "days": []}
    stash(box, 9)
    stash(box, 3, "bills")
    deliver(box)
    days = api.get("/api/kept/days")
    assert (days["records"], days["days"][0]["records"]) == (12, 12)
    found = api.get(f"/api/kept?{urlencode({'key': 'k1', 'topic': 'order*', 'since': '1h', 'limit': 2})}")
    positions = [each["position"] for each in found["records"]]
    assert ([each["key"] for each in found["records"]], found["next"]) == (["k1", "k1"], positions[-1])
    rest = api.get(f"/api/kept?key=k1&topic=order*&topic=none&after={found['next']}")
    assert ([each["key"] for each in rest["records"]], rest["next"]) == (["k1"], None)
    assert api.get("/api/kept?until=1h")["records"] == []
    shown = api.post("kept/reveal", position=positions[0], reason="to look")
    assert (shown["value"]["text"], shown["headers"]) == (
        "secret 1", [{"name": "seq", "text": "1", "base64": None}]
    )  # fmt: skip
    [noted] = api.get("/api/journal")["entries"]
    assert (noted["operator"], noted["verb"], noted["reason"]) == ("alice", "reveal", "to look")
    assert noted["subject"] == f"kept record {positions[0]}, key 'k1'"
    assert "no record is kept at position 4711" in api.post("kept/reveal", 409, position=4711)["error"]
    assert "expected a time" in api.get("/api/kept?since=yesterday", code=400)["error"]
    assert api.get("/api/kept?limit=1001", code=400)["error"].startswith("limit: ")


def test_odd_texts_and_positions_are_refused_or_find_nothing(api: Checked):
    half, many = "half of a character", "more than 500 topics and conditions"
    for path, body, seen in (
        ("replay", {"name": "x", "key": "\ud800"}, half),
        ("replay", {"name": "x", "topics": ["\udcff*"]}, half),
        ("replay", {"name": "x", "where": ["kafka_key = \ud800"]}, half),
        ("replay", {"name": "x", "topics": ["a\0"]}, "no topic has the character NUL"),
        ("replay", {"name": "x", "where": ["id > 1"] * 501, "dry_run": True}, many),
        ("erase", {"key": "\ud800"}, "unable to parse"),
    ):
        assert seen in api.post(path, 400, **body)["error"], body
    assert "there is no replay" in api.post("give-up", 409, name="\ud800")["error"]
    last = 2**63 - 1
    assert f"no record is kept at position {last}" in api.post("kept/reveal", 409, position=last)["error"]
    assert api.get("/api/journal")["entries"] == []


def test_who_may_only_read_sees_no_value_and_changes_nothing(api: Checked, box: HarvestSettings):
    stash(box, 1)
    deliver(box)
    [record] = api.get("/api/kept")["records"]
    for verb, body in (
        ("kept/reveal", {"position": record["position"]}),
        ("replay", ADDRESS),
        ("replay", {**ADDRESS, "dry_run": True}),
        ("give-up", {"name": "x"}),
        ("erase", {"key": "k0"}),
    ):
        assert "may only read" in api.post(verb, 403, VIEWER, **body)["error"]
    assert (waiting(box), operations.entries(box)) == (0, [])


def test_a_replay_is_told_before_it_runs_and_while_it_does(api: Checked, box: HarvestSettings):
    stash(box, 1_200)
    first = deliver(box)
    dry = api.post("replay", dry_run=True, **ADDRESS)
    assert (dry["running"], dry["kept"]["records"], dry["kept"]["keys"], dry["first"]["key"]) == (
        False, 1_200, 3, "k0"
    )  # fmt: skip
    assert "behind everything that the outbox has" in dry["effect"]
    assert (waiting(box), operations.entries(box)) == (0, [])
    begun = api.post("replay", reason="an incident", **ADDRESS)
    assert (begun["running"], begun["resumes"], begun["stashed"], begun["chosen"]) == (True, False, 0, 1_200)
    done = ended(api)
    assert (done["outcome"], done["error"]) == ("1,200 of 1,200 records stashed", "")
    assert deliver(box) == first
    [noted] = operations.entries(box)
    assert (noted.action.operator, noted.action.via, noted.action.reason) == ("alice", "http", "an incident")
    assert (noted.action.subject, noted.outcome) == ("x: topic orders*, since 1h", done["outcome"])
    assert "ended at" in api.post("replay", 409, **ADDRESS)["error"]
    nothing = api.post("replay", 409, **{**ADDRESS, "name": "y", "topics": ["other"]})
    assert "nothing is kept that was chosen" in nothing["error"]
    for wrong in ({"name": "no name!"}, {"since": "x"}, {"where": ["id LIKE 3"]}, {"to": "no topic"}):
        assert api.post("replay", 400, **{**ADDRESS, **wrong})["error"]
    assert waiting(box) == 0


def test_one_at_a_time_of_an_outbox_which_can_be_given_up(api: Checked, box: HarvestSettings):
    stash(box, 1_200)
    deliver(box)
    api.post("replay", rate=20, **ADDRESS)  # it lasts a minute
    refused = api.post("replay", 409, **{**ADDRESS, "name": "y"})
    assert "this process does the replay 'x' of this outbox" in refused["error"]
    until(lambda: waiting(box) > 0)
    told = api.get("/api/replays")["replays"]
    assert [(each["name"], each["running"], each["chosen"]) for each in told] == [("x", True, 1_200)]
    assert 0 < told[0]["stashed"] < 1_200
    given_up = api.post("give-up", name="x", reason="the wrong topic")
    done = ended(api)
    assert done["outcome"] == f"given up: {given_up['stashed']} of 1,200 records stashed"
    assert waiting(box) == given_up["stashed"]
    assert "given up: " in api.post("replay", 409, **ADDRESS)["error"]
    assert "there is no replay 'z'" in api.post("give-up", 409, name="z")["error"]
    assert api.post("replay", **{**ADDRESS, "name": "y"})["running"]
    assert ended(api, "y")["outcome"] == "1,200 of 1,200 records stashed"


def test_what_was_interrupted_goes_on_with_the_same_request(
    settings: Settings, box: HarvestSettings, monkeypatch: pytest.MonkeyPatch
):
    stash(box, 1_200)
    first = deliver(box)
    wanted = Wanted(name="x", choice=Choice(topics=("orders*",), since="1h"))
    operations.replay(box, operations.prepare_replay(box, wanted), ON_THE_COMMAND_LINE, pace(stop_after=1))
    monkeypatch.setattr(replaying, "MOST_WAITING", 0)  # so that it waits
    with serving(settings) as site:
        api = Checked(site)
        assert api.get("/api/replays")["replays"][0]["stashed"] == replaying.PAGE
        with replays_module.Replays() as others:  # another process
            going_on = others.begin(box, wanted, ON_THE_COMMAND_LINE)
            assert going_on is not None
            assert (going_on.resumed, going_on.kept.records) == (True, 700)
        assert not others.last(box).is_running  # type: ignore[union-attr]
        assert operations.entries(box)[0].outcome == "stopped: 500 of 1,200 records stashed"
        monkeypatch.setattr(replaying, "MOST_WAITING", 10_000)
        assert api.post("replay", **ADDRESS)["resumes"] is True
        assert ended(api)["outcome"] == "1,200 of 1,200 records stashed"
    assert deliver(box) == first


def test_an_error_ends_in_the_journal_and_the_log_and_is_told(
    api: Checked, box: HarvestSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    stash(box, 3)
    first = deliver(box)
    for error, words, noted in (
        (DriverError("gone", retryable=True), "gone", "failed: gone"),
        (ValueError("secret 1"), "this has failed; the harvester's log says why", "failed: ValueError"),
    ):
        with monkeypatch.context() as patched:
            failing = Mock(side_effect=error)
            patched.setattr("outbox_api.portable.replaying.PortableReplays.step", failing)
            api.post("replay", **ADDRESS)
            assert ended(api)["error"] == words
        assert any(each.outcome == noted for each in operations.entries(box)), operations.entries(box)
        assert words in caplog.text
    api.post("replay", **ADDRESS)
    done = ended(api)
    assert (done["outcome"], done["error"]) == ("3 of 3 records stashed", "")
    assert deliver(box) == first


def test_a_replay_whose_database_goes_away_stops_and_goes_on(
    postgres_dsn: str, caplog: pytest.LogCaptureFixture
):
    at = conninfo_to_dict(postgres_dsn)
    ports = [int(at["port"] or 0)]
    with Proxy(lambda: ports[-1]) as proxy:
        settings = keeping("postgres", make_conninfo(postgres_dsn, host="127.0.0.1", port=proxy.port))
        box = settings.harvest
        stash(box, 1_200)
        first = deliver(box)
        with serving(settings) as site:
            api = Checked(site)
            api.post("replay", rate=50, **ADDRESS)  # it lasts half a minute
            until(lambda: api.get("/api/replays")["replays"][0]["stashed"] > 100)
            ports.append(NOWHERE)
            proxy.cut()
            until(lambda: "replay 'x' of outbox 'outbox' has failed" in caplog.text)
            ports.append(ports[0])
            stopped = ended(api)
            assert stopped["error"]
            assert stopped["ended"] is None
            assert 100 < stopped["stashed"] < 1_200
            assert str(at["password"]) not in caplog.text + stopped["error"]
            assert api.post("replay", **ADDRESS)["stashed"] == stopped["stashed"]
            assert ended(api)["outcome"] == "1,200 of 1,200 records stashed"
        assert deliver(box) == first


def test_a_key_is_erased_and_the_receipt_does_not_name_it(api: Checked, box: HarvestSettings):
    stash(box, 9)
    deliver(box)
    stash(box, 3)
    done = api.post("erase", key="k1", tombstone="orders", reason="a request of k1")
    assert (done["kept"], done["dead_letters"], done["waiting"], done["tombstone"]) == (3, 0, 1, "orders")
    assert "k1" not in str(done)
    assert {each["key"] for each in api.get("/api/kept")["records"]} == {"k0", "k2"}
    [noted] = operations.entries(box)
    assert (noted.action.verb, noted.action.subject) == ("erase", f"key {done['digest']}")
    assert api.post("erase", 400, key="")["error"].startswith("key: ")
    assert "not the name of a topic" in api.post("erase", 400, key="k1", tombstone="no topic")["error"]


def test_without_kept_records_a_cure_is_named(settings: Settings, box: HarvestSettings, api: Checked):
    with closing(box.dialect.create().stash_connection()) as connection:
        connection.cursor().execute("DROP TABLE outbox_kept")
        connection.commit()
    for path in ("kept", "kept/days", "replays"):
        assert "there is no table of kept records" in api.get(f"/api/{path}", code=502)["error"]
    assert "run 'outbox init'" in api.post("replay", 502, **ADDRESS)["error"]
    assert api.get("/api/parked")["total"] == 0
