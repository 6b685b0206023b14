"""etcd as a service: durable, restartable, crashable."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from outbox_servers.services import EtcdServer, ServiceError
from outbox_servers.services.etcd import Installation


def _ask(server: EtcdServer, what: str, **body: str) -> Any:
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in body.items()}
    request = Request(f"http://{server.endpoint}/v3/kv/{what}", json.dumps(encoded).encode())
    with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
        return json.load(answer)


def test_what_it_has_acknowledged_survives_and_the_address_stays() -> None:
    with EtcdServer() as server:
        endpoint = server.endpoint
        _ask(server, "put", key="a", value="kept")
        server.kill()
        with pytest.raises(OSError, match="refused"):
            _ask(server, "range", key="a")
        server.start()
        assert server.endpoint == endpoint
        assert base64.b64decode(_ask(server, "range", key="a")["kvs"][0]["value"]) == b"kept"
        server.stop()
        assert not server.running
    assert not server.folder.exists()


def test_a_program_that_does_not_serve_is_an_error_with_its_log() -> None:
    with (
        pytest.raises(ServiceError, match="before it was ready"),
        EtcdServer(installation=Installation(("/bin/false",), "0")),
    ):
        pass
