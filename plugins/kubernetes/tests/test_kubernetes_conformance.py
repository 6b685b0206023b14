"""The elector on Kubernetes does what every elector must, on a real API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from outbox_kubernetes import KubernetesOptions
from outbox_servers.services.kubernetes import KubeApiServer
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, ServiceUnderTest
from outbox_testkit.proxy import Proxy

SESSION = 8.0
"""Seconds: a leader that a busy machine halts for three seconds leads on."""

# The first run builds the API server.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


class TestKubernetes(ElectorConformance):
    @pytest.fixture
    def elector(self, api_server: KubeApiServer, options_on: Callable[..., KubernetesOptions]):
        options = options_on(api_server, session_timeout=SESSION)
        with Proxy(lambda: api_server.port) as proxy:
            proxied = replace(options, server=f"https://127.0.0.1:{proxy.port}")
            service = ServiceUnderTest(api_server.kill, api_server.start, proxy, proxied)
            yield ElectorUnderTest("kubernetes", options, SESSION, service, elections=30)
