"""The API server that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from outbox_kubernetes import KubernetesOptions
from outbox_servers.services.kubernetes import KubeApiServer

README = Path(__file__).parents[1] / "README.md"

Options = Callable[..., KubernetesOptions]


@pytest.fixture(scope="session")
def api_server() -> Iterator[KubeApiServer]:
    with KubeApiServer() as server:
        yield server


@pytest.fixture
def options_on(tmp_path: Path) -> Callable[..., KubernetesOptions]:
    """Makes a namespace, and the options of an account that may do what the README's Role permits."""

    def make(server: KubeApiServer, **settings: Any) -> KubernetesOptions:
        namespace = f"test-{uuid4().hex}"
        server.create_namespace(namespace)
        token = tmp_path / namespace
        token.write_text(server.create_account(namespace, "outbox", rules()))
        given = {"leader_group_id": "billing", "session_timeout": 3, **settings}
        return KubernetesOptions(
            server=server.url,
            token_file=str(token),
            ca_file=str(server.authority),
            namespace=namespace,
            **given,
        )

    return make


def rules() -> list[Any]:
    """Returns the rules of the Role that the README shows."""
    documents = README.read_text("utf-8").split("```yaml\n")[2].split("```")[0]
    role, _ = yaml.safe_load_all(documents)
    found: list[Any] = role["rules"]
    return found
