"""ZooKeeper as a service: its data and its clients' sessions survive a stop and a crash."""

from __future__ import annotations

import pytest
from outbox_servers.services import ServiceError, ZooKeeperServer, find_java
from outbox_servers.services.zookeeper import zookeeper_jars


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_the_address_and_the_data_survive(way: str) -> None:
    with ZooKeeperServer() as server:
        hosts, folder = server.hosts, server.folder
        getattr(server, way)()
        assert not server.running
        server.start()
        assert server.hosts == hosts
        assert list((folder / "data" / "version-2").iterdir())
    assert not folder.exists()


def test_a_wrong_setting_is_named_in_the_error() -> None:
    with pytest.raises(ServiceError, match="tickTime"), ZooKeeperServer(settings={"tickTime": "soon"}):
        pass


def test_an_installation_without_jars_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", "/nowhere")
    with pytest.raises(ServiceError, match="ZOOKEEPER_HOME"):
        zookeeper_jars(find_java())
