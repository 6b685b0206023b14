"""The options of the elector on Kubernetes, and what the service account of a pod adds; without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError, Level
from outbox_kubernetes import KubernetesOptions, create, options
from outbox_testkit.conformance.recording import RecordingCandidate

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_needs_no_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("shop\n")
    found = options.located(KubernetesOptions(), POD)
    assert found == KubernetesOptions(
        server="https://10.0.0.1:443",
        token_file=str(tmp_path / "token"),
        ca_file=str(tmp_path / "ca.crt"),
        namespace="shop",
    )
    in_v6 = options.located(
        KubernetesOptions(namespace="other"), {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    )
    assert (in_v6.server, in_v6.namespace) == ("https://[fd00::1]:443", "other")


def test_who_is_in_no_pod_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    elector = create(KubernetesOptions("billing"))
    with pytest.raises(ConfigError, match="set server, tokenFile, caFile and namespace"):
        elector.start(RecordingCandidate())
    [error] = [each for each in elector.check() if each.level is Level.ERROR]
    assert "runs in no pod" in error.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session_timeout": 0}, "longer than 0"),
        ({"server": "kubernetes:443"}, "https://host:port"),
        ({"server": "https://user@host", "namespace": "shop"}, "without a user"),
        ({"server": "https://host"}, "namespace must say"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KubernetesOptions("billing", **settings)


def test_names_that_kubernetes_does_not_permit_are_changed_and_stay_distinct() -> None:
    assert KubernetesOptions("billing.eu-1").lease_name == "billing.eu-1"
    one, other = (
        KubernetesOptions(each).lease_name for each in ("outbox-Shop_outbox-aB", "outbox-shop.outbox-Ab")
    )
    assert one.startswith("outbox-shop-outbox-ab-")
    assert one != other
    assert len(KubernetesOptions("x" * 300).lease_name) < 63
    with pytest.raises(ConfigError, match="leaderGroupID"):
        _ = KubernetesOptions().lease_name


def test_a_token_in_clear_to_another_machine_is_warned_of() -> None:
    clear = KubernetesOptions(server="http://kubernetes.example:1", namespace="shop")
    [finding] = [each for each in create(clear).check() if each.subject == "Kubernetes transport"]
    assert finding.level is Level.WARNING
    assert "the token crosses the network to kubernetes.example in clear" in finding.message
    local = replace(clear, server="http://127.0.0.1:8001")
    assert all(each.subject != "Kubernetes transport" for each in create(local).check())
