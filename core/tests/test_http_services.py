"""The HTTP server of real harvesters, with a real PostgreSQL and Kafka."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from outbox_console.prometheus import exported
from outbox_core.monitoring.names import METRICS
from outbox_testkit.proxy import Proxy
from prometheus_client import Metric
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .cli_runner import INSERT, OUTBOX, changed, configure, frozen, harvester, program, told, until
from .http_client import Site, served, site_of, total

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"


@pytest.fixture
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str) -> Path:
    return served(configure(tmp_path, postgres_dsn, kafka_bootstrap))


def stash(dsn: str, topic: str, records: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(INSERT, (topic, records))


def total_of(site: Site) -> int | None:
    """Returns how many records were purged, if the database has answered in time."""
    answered = site.get("/status")
    return int(json.loads(answered.text)["total"]["purged_total"]) if answered.code == 200 else None


def on_topic(bootstrap: str, topic: str) -> int:
    """Returns how many messages there are on a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), 30) for each in partitions]
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def documented() -> list[tuple[str, str]]:
    """Returns the metrics that docs/monitoring.md has, each with its kind, and ``s`` if it is in seconds."""
    return re.findall(r"^\| `([\w.]+)` \| (\w+(?:, s)?) \|", PAGE.read_text("utf-8"), re.MULTILINE)


def test_every_metric_is_documented_with_its_kind_and_whether_it_is_in_seconds():
    listed = documented()
    assert sorted(listed) == sorted(
        (each.name, f"{each.kind}, s" if each.unit == "s" else each.kind) for each in METRICS
    )


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_it_serves_what_status_prints_and_what_was_published(
    delivery: str, file: Path, postgres_dsn: str, topic: str
):
    file = changed(file, delivery=delivery)
    told(file, "init")
    with harvester(file):
        site = site_of(file)
        assert (site.get("/livez").code, site.get("/readyz").code) == (200, 200)
        stash(postgres_dsn, topic, 60)  # few enough for each to tell how long it has waited
        until(lambda: site.total("outbox_delivery_duration_seconds", outbox_name="outbox") == 60)
        stash(postgres_dsn, topic, 440)
        until(lambda: total_of(site) == 500)
        until(lambda: bool(site.json("/api/history")["points"]))
        until(lambda: site.get("/status").code == 200)
        status, printed = site.json("/status"), json.loads(told(file, "status", "--json"))
        assert status.keys() == printed.keys()
        assert status["leader"] == printed["leader"]
        until(lambda: site.total("messaging_client_sent_messages", messaging_destination_name=topic) == 500)
        families: dict[str, Metric] = {}

        def looked_at() -> bool:
            families.clear()
            families.update(site.scrape())
            return total(families["outbox_database_up"]) == 1

        until(looked_at)  # a busy machine may answer without a look at the database
    assert_complete(families)
    assert "value 1" not in str(families)
    assert "key-1" not in str(families)
    for name in ("outbox_purged", "outbox_marked"):
        assert total(families[name], outbox_name="outbox") == 500
    sent = families["messaging_client_sent_messages"]
    assert total(sent, messaging_destination_name=topic, messaging_system="kafka") == 500
    operations = total(families["messaging_client_operation_duration_seconds"])
    assert operations == 500 if delivery == "at-least-once" else 1 <= operations <= 500
    assert total(families["outbox_leader"]) == 1
    assert total(families["outbox_fence_token"]) == status["leader"]["token"]
    assert {sample.labels["outbox_lane"] for sample in families["outbox_purged"].samples} == {"0", "1"}


def assert_complete(families: dict[str, Metric]) -> None:
    """Compares a scrape of a leader on PostgreSQL that has published with the metrics that there are."""
    kinds = {
        f"{name}_total" if family.type == "counter" else name: family.type
        for name, family in families.items()
        if name != "target_info"
    }
    assert kinds == {exported(each): each.kind for each in METRICS}


def test_one_server_shows_several_outboxes(file: Path, postgres_dsn: str, topic: str):
    data = json.loads(file.read_text())
    data["outboxes"] = {"first": {"outboxTable": "one"}, "second": {"outboxTable": "two"}}
    file.write_text(json.dumps(data))
    told(file, "init")
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(INSERT.replace("INTO outbox", "INTO two"), (topic, 50))
    with harvester(file):
        site = site_of(file)
        until(lambda: site.total("messaging_client_sent_messages", outbox_name="second") == 50)
        until(lambda: site.total("outbox_leader") == 2)
        assert site.total("outbox_purged", outbox_name="first") == 0
        assert site.get("/readyz").text == "takes part in 2 of 2 elections\n"
        until(lambda: [each.get("outbox") for each in site.json("/status")["outboxes"]] == ["one", "two"])
        assert [each["label"] for each in site.json("/status")["outboxes"]] == ["first", "second"]


class Watch:
    """Scrapes several sites, and makes sure that no counter of theirs goes back."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._seen: dict[tuple[object, ...], float] = {}

    def total(self, name: str, *, of: Sequence[Site] = (), **labels: str) -> float:
        return sum(total(self.scrape(site).get(name), **labels) for site in of or self._sites)

    def scrape(self, site: Site) -> dict[str, Metric]:
        families = site.scrape()
        for family in families.values():
            for sample in family.samples if family.type in {"counter", "histogram"} else ():
                series = (site.port, sample.name, *sorted(sample.labels.items()))
                assert sample.value >= self._seen.get(series, 0.0), series
                self._seen[series] = sample.value
        return families


@pytest.mark.slow
def test_counters_never_go_back_through_takeovers_and_their_sums_are_what_was_published(
    file: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str
):
    # Longer than what keeps a process of a busy machine from confirming its lease.
    elector = {"driver": "lease", "sessionTimeout": "10s"}
    plain, files = file.with_name("outbox.yaml"), []
    for name in ("one", "other"):
        made = served(changed(plain, elector=elector, name=name))
        files.append(made.rename(made.with_name(f"{name}.yaml")))
    told(files[0], "init")
    with ExitStack() as stack:
        running = [stack.enter_context(started(each)) for each in files]
        sites = [site_of(each) for each in files]
        until(lambda: all(answers(site) and site.get("/readyz").code == 200 for site in sites))
        watch = Watch(sites)
        stash(postgres_dsn, topic, 300)
        until(lambda: watch.total("outbox_purged") == 300)
        first = next(number for number, site in enumerate(sites) if site.total("outbox_leader"))
        assert watch.total("outbox_leader") == 1
        # From the last of these counts for how long a leader has not been heard.
        until(lambda: {bool(lane["heartbeat"]) for lane in sites[first].json("/status")["lanes"]} == {True})

        with frozen(running[first]):
            stash(postgres_dsn, topic, 200)
            successor = [sites[1 - first]]
            until(lambda: watch.total("outbox_purged", of=successor) == 200)
            assert watch.total("outbox_failover_duration_seconds", of=successor) == 1
            assert watch.total("outbox_failover_silence_seconds", of=successor) == 1
        until(lambda: watch.total("outbox_leader") == 1 and watch.total("outbox_candidate") == 2)
        assert watch.total("outbox_purged") == 500

        # The successor loses its leadership, and takes it up again with new lanes.
        token = watch.total("outbox_fence_token")
        told(files[0], "fence", "bump", "--yes")
        until(lambda: watch.total("outbox_fence_token") > token + 1)
        stash(postgres_dsn, topic, 100)
        until(lambda: watch.total("outbox_purged") == 600)
        until(lambda: watch.total("messaging_client_sent_messages", messaging_destination_name=topic) == 600)
        assert on_topic(kafka_bootstrap, topic) == 600
        assert watch.total("messaging_client_sent_messages") == 600


@contextmanager
def started(file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A harvester that is killed in the end."""
    process = subprocess.Popen([OUTBOX, "run", "-f", str(file)], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(site: Site) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", site.port), 1):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_a_database_that_is_away_while_its_status_is_asked_for(file: Path, postgres_dsn: str, topic: str):
    told(file, "init")
    at = conninfo_to_dict(postgres_dsn)
    with Proxy(lambda: int(at["port"] or 0)) as proxy:
        source = make_conninfo(postgres_dsn, host="127.0.0.1", port=proxy.port)
        password = str(at["password"])
        away = changed(file, dataSource=source)
        with harvester(away):
            site = site_of(away)
            stash(postgres_dsn, topic, 100)
            until(lambda: site.total("outbox_purged") == 100)
            until(lambda: site.total("outbox_database_up") == 1)
            proxy.silence()
            until(lambda: site.get("/status").code == 503)
            assert "the database has not answered for 5s" in site.get("/status").text
            until(lambda: site.total("outbox_database_up") == 0)
            assert site.total("outbox_purged") == 100
            proxy.speak()
            until(lambda: site.get("/status").code == 200)
            proxy.close()
            until(lambda: site.get("/status").code == 503)
            answered = site.get("/status")
            assert json.loads(answered.text)["error"]
            assert password not in answered.text
            assert site.get("/livez").code == 200
            assert site.total("outbox_database_up") == 0


def test_a_port_in_use_ends_the_start(file: Path):
    told(file, "init")
    with socket.create_server(("127.0.0.1", site_of(file).port)):
        done = program(file, "run")
    assert done.returncode == 1
    assert re.search(r"^error: http\.listen: 127\.0\.0\.1:\d+ is in use", done.stderr, re.MULTILINE)
