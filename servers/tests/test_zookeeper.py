"""ZooKeeper as a service: stopped, killed, and started again."""

from __future__ import annotations

import pytest
from outbox_servers.services import ServiceError, ZooKeeperServer, find_java
from outbox_servers.services.zookeeper import zookeeper_jars


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_it_serves_again_at_the_same_address(way: str) -> None:
    with ZooKeeperServer() as server:
        hosts, folder = server.hosts, server.folder
        getattr(server, way)()
        assert not server.running
        server.start()
        assert server.hosts == hosts
        assert server.running
    assert not folder.exists()


def test_a_wrong_setting_is_named_in_the_error() -> None:
    with pytest.raises(ServiceError, match="soon"), ZooKeeperServer(settings={"tickTime": "soon"}):
        pass


def test_an_installation_without_jars_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", "/nowhere")
    with pytest.raises(ServiceError, match="ZOOKEEPER_HOME"):
        zookeeper_jars(find_java())
