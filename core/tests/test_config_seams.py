"""A driver for each seam: ours, and one of another distribution, found by its entry point."""

import sys
from pathlib import Path

import pytest
from outbox_api import ConfigError, PluginError
from outbox_core.config import parse

PLUGIN = """
from dataclasses import dataclass, field
from typing import Any
from outbox_api import Affinity, Dialect, Driver, Duration, Elector, Origin, Publisher, hookimpl
from outbox_api.seams.hooks import GIVEN

@dataclass(frozen=True)
class AcmeOptions:
    data_source: str = field(repr=False)
    table: str
    kafka: dict[str, Any] = field(repr=False)
    leader_topic: str
    leader_group_id: str
    min_poll_interval: Duration
    heartbeat_timeout: Duration
    stop_after: Duration
    max_size: int = 5

class Acme:
    def __init__(self, options: AcmeOptions) -> None:
        self.options = options

@dataclass(frozen=True)
class BoxOptions(AcmeOptions):
    origin: Origin | None = field(default=None, metadata=GIVEN)

@dataclass(frozen=True)
class RegionOptions:
    region: int = 1

class Region(Acme):
    def origin(self) -> Origin:
        return Origin(column="region", own=self.options.region, known=(1, 2))

@hookimpl
def outbox_dialect() -> Driver[Dialect]:
    return Driver(BoxOptions, Acme)

@hookimpl
def outbox_affinity() -> Driver[Affinity]:
    return Driver(RegionOptions, Region)

@hookimpl
def outbox_elector() -> Driver[Elector]:
    return Driver(AcmeOptions, Acme)

@hookimpl
def outbox_publisher() -> Driver[Publisher]:
    return Driver(AcmeOptions, Acme)
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a distribution 'outbox-acme' with the driver 'acme', with the files that pip would write."""
    (tmp_path / "outbox_acme_test.py").write_text(PLUGIN)
    info = tmp_path / "outbox_acme-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-acme\nVersion: 1.2.3\n")
    (info / "entry_points.txt").write_text("[outbox]\nacme = outbox_acme_test\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "outbox_acme_test", raising=False)


@pytest.mark.usefixtures("acme")
def test_a_strangers_driver_gets_what_the_seams_share():
    text = """
harvest:
  baseKafkaConfig: {bootstrap.servers: "b:1", client.id: base}
  producerKafkaConfig: {client.id: producer, linger.ms: 5}
  dataSource: acme://db
  outboxTable: shop.outbox
  leaderGroupID: shop
  limits: {minPollInterval: 1s, heartbeatTimeout: 7s}
  failures: {stopAfter: 2m}
  dialect: acme
  elector: {driver: acme, kafka: {client.id: elector}, maxSize: 9}
  publisher: {driver: acme, kafka: {linger.ms: 7, acks: }}
"""
    harvest = parse(text, "f.yaml", {}).harvest
    dialect, elector, publisher = (
        choice.options for choice in (harvest.dialect, harvest.elector, harvest.publisher)
    )
    assert dialect.data_source == "acme://db"
    assert dialect.table == "shop.outbox"
    assert (dialect.leader_group_id, dialect.leader_topic) == ("shop", "shop.neli")
    assert (dialect.min_poll_interval, dialect.heartbeat_timeout, dialect.stop_after) == (1.0, 7.0, 120.0)
    assert dialect.kafka == {"bootstrap.servers": "b:1", "client.id": "base"}
    assert elector.kafka == {"bootstrap.servers": "b:1", "client.id": "elector"}
    assert elector.max_size == 9
    assert publisher.kafka == {"bootstrap.servers": "b:1", "client.id": "producer", "linger.ms": "7"}
    assert type(harvest.dialect.create()).__name__ == "Acme"


@pytest.mark.usefixtures("acme")
def test_a_dialect_is_told_where_rows_come_from():
    text = "harvest: {dataSource: acme://db, dialect: acme, leaderGroupID: shop, affinity: %s}"
    there = parse(text % "{driver: acme, region: 2}", "f.yaml", {}).harvest.dialect.options
    assert (there.origin.column, there.origin.own) == ("region", 2)
    assert parse(text % "none", "f.yaml", {}).harvest.dialect.options.origin is None


@pytest.mark.usefixtures("acme")
def test_nobody_can_write_where_rows_come_from():
    text = "harvest: {dataSource: acme://db, leaderGroupID: shop, dialect: {driver: acme, origin: here}}"
    with pytest.raises(ConfigError, match=r"dialect\.origin: unknown key"):
        parse(text, "f.yaml", {})


@pytest.mark.usefixtures("acme")
def test_options_of_the_seam_win_over_what_is_shared():
    text = """
harvest:
  dataSource: acme://db
  leaderGroupID: shop
  elector: {driver: acme, leaderGroupID: other, heartbeatTimeout: 3s, table: mine, dataSource: acme://there}
  limits: {heartbeatTimeout: 7s}
"""
    elector = parse(text, "f.yaml", {}).harvest.elector.options
    assert (elector.leader_group_id, elector.leader_topic) == ("other", "other.neli")
    assert (elector.heartbeat_timeout, elector.table, elector.data_source) == (3.0, "mine", "acme://there")


@pytest.mark.usefixtures("acme")
def test_the_default_data_source_is_for_the_default_dialect_only():
    with pytest.raises(
        ConfigError, match=r"^f.yaml:2: harvest\.dialect\.dataSource: missing, and it has no default$"
    ):
        parse("harvest:\n  dialect: acme\n", "f.yaml", {})


@pytest.mark.usefixtures("acme")
def test_a_wrong_option_of_a_strangers_driver():
    with pytest.raises(ConfigError) as caught:
        parse("harvest:\n  elector:\n    driver: acme\n    max_size: 5\n    kafka: 5\n", "f.yaml", {})
    assert str(caught.value).splitlines()[1:] == [
        "  f.yaml:4: harvest.elector.max_size: unknown key; did you mean 'maxSize'?",
        "  f.yaml:5: harvest.elector.kafka: expected a mapping of keys to values",
    ]


@pytest.mark.usefixtures("acme")
def test_a_plugin_that_cannot_be_imported(tmp_path: Path):
    (tmp_path / "outbox_acme_test.py").write_text("import no_such_module\n")
    with pytest.raises(PluginError) as caught:
        parse("harvest: {dialect: acme}", "f.yaml", {})
    assert str(caught.value) == (
        "f.yaml:1: harvest.dialect.driver: driver 'acme' of outbox-acme 1.2.3 cannot be loaded: "
        "No module named 'no_such_module'"
    )


@pytest.mark.usefixtures("acme")
def test_two_distributions_with_one_name(tmp_path: Path):
    info = tmp_path / "outbox_acme2-4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-acme2\nVersion: 4\n")
    (info / "entry_points.txt").write_text("[outbox]\nacme = outbox_acme_test\n")
    with pytest.raises(
        PluginError, match=r"'acme' is provided more than once: outbox-acme 1.2.3, outbox-acme2 4;"
    ):
        parse("harvest: {dialect: acme}", "f.yaml", {})
