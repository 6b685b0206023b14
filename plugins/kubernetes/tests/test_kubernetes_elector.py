"""What is particular to the elector on a real API server: its numbers, its permissions, its errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from outbox_api import AccessDenied, DriverError, Finding, Level
from outbox_api.election import LeaseWatch
from outbox_kubernetes import KubernetesOptions, create
from outbox_kubernetes.lease import KubernetesLease
from outbox_servers.certificates import Authority
from outbox_servers.services.kubernetes import KubeApiServer
from outbox_testkit.conformance.recording import RecordingCandidate

# The first run builds the API server.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def options(api_server: KubeApiServer, options_on: Callable[..., KubernetesOptions]) -> KubernetesOptions:
    return options_on(api_server)


@pytest.fixture
def leases(options: KubernetesOptions) -> Iterator[list[KubernetesLease]]:
    opened = [KubernetesLease(options, LeaseWatch()) for _ in range(2)]
    yield opened
    for lease in opened:
        lease.close()


def stored(server: KubeApiServer, options: KubernetesOptions) -> tuple[str, dict[str, Any]]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{options.namespace}/leases/{options.lease_name}"
    return path, server.ask("GET", path)


def errors(options: KubernetesOptions) -> list[Finding]:
    return [each for each in create(options).check() if each.level is Level.ERROR]


def test_numbers_grow_with_each_holder(leases: list[KubernetesLease]) -> None:
    leader, standby = leases
    first = leader.take("leader", 3)
    assert first is not None
    assert standby.take("standby", 3) is None
    assert leader.take("leader", 3) == first
    leader.release("leader")
    second = standby.take("standby", 3)
    assert second is not None
    assert second > first
    leader.release("leader")  # no longer its own
    assert leader.take("leader", 3) is None
    assert standby.take("standby", 3) == second


def test_a_lease_runs_out_by_the_own_clock_whatever_time_it_says(
    api_server: KubeApiServer, options: KubernetesOptions, leases: list[KubernetesLease]
) -> None:
    former, standby = leases
    first = former.take("former", 3)
    path, lease = stored(api_server, options)
    lease["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
    api_server.ask("PUT", path, lease)
    began = time.monotonic()
    while (second := standby.take("standby", 3)) is None:
        time.sleep(0.1)
    assert time.monotonic() - began >= 3
    assert first is not None
    assert second > first
    assert former.take("former", 3) is None


def test_a_new_connection_goes_on_with_the_same_number_and_what_others_wrote_stays(
    api_server: KubeApiServer, options: KubernetesOptions, leases: list[KubernetesLease]
) -> None:
    leader, standby = leases
    number = leader.take("leader", 3)
    path, lease = stored(api_server, options)
    lease["metadata"]["labels"] = {"team": "billing"}
    api_server.ask("PUT", path, lease)
    assert leader.take("leader", 3) == number
    again = KubernetesLease(options, LeaseWatch())
    assert again.take("leader", 3) == number
    again.close()
    assert standby.take("standby", 3) is None
    assert stored(api_server, options)[1]["metadata"]["labels"] == {"team": "billing"}


def test_a_lease_that_an_operator_deletes_or_left_empty_is_taken(
    api_server: KubeApiServer, options: KubernetesOptions, leases: list[KubernetesLease]
) -> None:
    leader, standby = leases
    assert leader.take("leader", 3) == 1
    path, lease = stored(api_server, options)
    api_server.ask("DELETE", path)
    assert standby.take("standby", 3) == 1
    assert leader.take("leader", 3) is None
    api_server.ask("DELETE", path)
    made = {"apiVersion": lease["apiVersion"], "kind": "Lease", "metadata": {"name": options.lease_name}}
    api_server.ask("POST", path.rpartition("/")[0], made)
    assert leader.take("leader", 3) == 1


def test_who_may_do_what_the_readme_grants_leads(options: KubernetesOptions) -> None:
    assert errors(options) == []
    elector, candidate = create(options), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"])
    elector.stop()
    assert errors(options) == []


def test_who_lacks_a_verb_is_told_which(
    api_server: KubeApiServer, options: KubernetesOptions, tmp_path: Path
) -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    token = api_server.create_account(options.namespace or "", "reader", [rule])
    (tmp_path / "reader").write_text(token)
    reader = replace(options, token_file=str(tmp_path / "reader"), stop_after=1)
    [error] = errors(reader)
    assert "may not create, update the Lease 'billing'" in error.message
    assert error.cure.startswith("grant create, update on leases.coordination.k8s.io in the namespace")
    candidate = RecordingCandidate()
    elector = create(reader)
    elector.start(candidate)
    candidate.wait(["failed"])
    elector.stop()


def test_a_token_that_is_wrong_is_not_told(options: KubernetesOptions, tmp_path: Path) -> None:
    file = tmp_path / "token"
    wrong = replace(options, token_file=str(file))
    for token, kind in (("a-secret", AccessDenied), ("a secret\nof two lines", DriverError)):
        file.write_text(token)
        with pytest.raises(kind, match="tokenFile") as caught:
            create(wrong).start(RecordingCandidate())
        assert not caught.value.retryable
        assert "secret" not in f"{caught.value!r} {caught.value.__cause__!r} {errors(wrong)}"


def test_a_token_that_is_replaced_costs_no_leadership(
    api_server: KubeApiServer, options: KubernetesOptions
) -> None:
    file = Path(options.token_file or "")
    elector, candidate = create(options), RecordingCandidate()
    elector.start(candidate)
    candidate.wait(["acquired"])
    accounts = f"/api/v1/namespaces/{options.namespace}/serviceaccounts/outbox"
    former = file.read_text()
    file.unlink()  # for a moment there is none
    time.sleep(0.7)
    made = api_server.ask("POST", f"{accounts}/token", {"spec": {"expirationSeconds": 7200}})
    file.write_text(made["status"]["token"] + "\n")
    assert former != made["status"]["token"]
    time.sleep(options.lease_duration)
    assert candidate.story == ["acquired"]
    assert elector.lease() > 0
    elector.stop()


def test_a_namespace_that_is_missing_is_an_error_with_its_cure(
    api_server: KubeApiServer, tmp_path: Path
) -> None:
    options = KubernetesOptions("billing", **{**api_server.admin(), "namespace": "nowhere"})
    [error] = errors(options)
    assert "create the namespace 'nowhere'" in error.message


def test_nobody_there_and_another_authority_are_errors_with_their_cure(
    options: KubernetesOptions, tmp_path: Path
) -> None:
    other = str(Authority(tmp_path, "other").certificate)
    for changed, cure in (
        ({"server": "https://127.0.0.1:1"}, "see that it runs"),
        ({"ca_file": other}, "set caFile to the file"),
        ({"ca_file": None}, "set caFile to the file"),
        ({"ca_file": "/nowhere/ca.pem"}, "cannot read the authority in caFile '/nowhere/ca.pem'"),
    ):
        with pytest.raises(DriverError, match=cure) as caught:
            create(replace(options, **changed)).start(RecordingCandidate())
        assert "\n" not in str(caught.value)
        assert "object at" not in str(caught.value)
        assert [cure in each.message for each in errors(replace(options, **changed))] == [True]
