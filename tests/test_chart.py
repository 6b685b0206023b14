"""The chart: what Helm makes of it, and that a real API server of Kubernetes takes all of it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from outbox_core.cli.run import GRACE_SECONDS
from outbox_core.config import parse
from outbox_core.settings import Settings
from outbox_servers.services.kubernetes import VERSION, KubeApiServer, find_program

from .harvesters import until
from .test_documents import ROOT

# The first of them builds Helm or an API server, once a machine.
pytestmark = pytest.mark.timeout(1500)

MANIFESTS = ROOT / "deploy" / "manifests"
RENDERED = {"outbox.yaml": "", "everything.yaml": "-f deploy/manifests/everything.values.yaml"}
"""The manifests, and with which options Helm makes them of the chart."""
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
STRICT = "dryRun=All&fieldValidation=Strict"


def helm(command: str) -> subprocess.CompletedProcess[str]:
    words = [str(find_program("helm")), *command.split(), "--kube-version", VERSION]
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=ROOT)


def rendered(name: str) -> str:
    done = helm(f"template outbox deploy/chart {RENDERED[name]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(manifests: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(manifests) if each]


def settings(manifests: str, folder: Path) -> Settings:
    """Returns what the configuration of manifests says, with secrets from a folder."""
    [config] = [each for each in objects(manifests) if each["kind"] == "ConfigMap"]
    text = config["data"]["outbox.yaml"]
    for name in re.findall(r"\$\{file:/run/secrets/outbox/(.+?)}", text):
        (folder / name).write_text("secret-of-the-tests")
    return parse(text.replace("/run/secrets/outbox", str(folder)))


@pytest.mark.parametrize("name", RENDERED)
def test_the_manifests_configure_a_harvester_that_ends_before_it_is_killed(name: str, tmp_path: Path) -> None:
    manifests = (MANIFESTS / name).read_text("utf-8")
    found = settings(manifests, tmp_path)
    [deployment] = [each for each in objects(manifests) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert found.http.listen == f"0.0.0.0:{pod['containers'][0]['ports'][0]['containerPort']}"
    assert pod["terminationGracePeriodSeconds"] > GRACE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("name", RENDERED)
def test_the_manifests_are_what_the_chart_renders(name: str) -> None:
    """If not, make them anew: ``helm template outbox deploy/chart > deploy/manifests/outbox.yaml``."""
    assert rendered(name) == (MANIFESTS / name).read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", RENDERED)
def test_helm_finds_nothing_wrong(name: str) -> None:
    done = helm(f"lint --strict deploy/chart {RENDERED[name]}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("replica=3", "replica"),
        ("replicaCount=two", "replicaCount"),
        ("terminationGracePeriodSeconds=3", "terminationGracePeriodSeconds"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("config.havest.engine=inline", "havest"),
        ("existingSecret=", "existingSecret"),
        ("serviceAccount.nam=another", "nam"),
        ("podLabels.team=7", "podLabels"),
        ("topologySpreadConstraints=zone", "topologySpreadConstraints"),
        ("podMonitor.interval=often", "interval"),
        ("config.harvest.elector=kubernetes", "leaderGroupID"),
        ("config.harvest.elector=kubernetes,config.harvest.leaderGroupID=Our_Group", "leaderGroupID"),
    ],
)
def test_nonsense_is_refused_by_its_name(option: str, named: str) -> None:
    done = helm(f"template outbox deploy/chart --set {option}")
    assert done.returncode != 0
    assert named in done.stderr


FORMER = {
    "replicas": "3",
    "secret": "mine",
    "env[0].name": "A",
    "labels.a": "b",
    "annotations.a": "b",
    "pod.nodeSelector.a": "b",
}
"""Values by the names that they had once."""
PRESENT = (
    "annotations is now podAnnotations; env is now extraEnv; labels is now podLabels; "
    "pod is now nodeSelector, at the top; replicas is now replicaCount; secret is now existingSecret"
)


@pytest.fixture(scope="module")
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer() as started:
        define_monitors(started)
        yield started


@pytest.mark.slow
def test_an_api_server_takes_all_of_it(server: KubeApiServer) -> None:
    for each in [each for name in RENDERED for each in objects(rendered(name))]:
        made = server.ask("POST", f"{collection(server, each)}?{STRICT}", each)
        assert made["metadata"]["name"] == each["metadata"]["name"]


@pytest.mark.slow
def test_a_release_is_installed_and_upgraded_from_former_values_only_by_the_present_ones(
    server: KubeApiServer,
) -> None:
    reached = server.admin()
    token = Path(reached["token_file"]).read_text()
    at = f"--kube-apiserver {reached['server']} --kube-token {token} --kube-ca-file {reached['ca_file']}"

    def release(verb: str, options: str) -> subprocess.CompletedProcess[str]:
        command = [str(find_program("helm")), verb, "shop", "deploy/chart", *at.split(), *options.split()]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)

    def deployed() -> dict[str, Any]:
        found: dict[str, Any] = server.ask("GET", "/apis/apps/v1/namespaces/default/deployments/shop-outbox")
        return found

    installed = release("install", "")
    assert installed.returncode == 0, installed.stderr
    assert "rollout status deployment/shop-outbox" in installed.stdout
    refused = release("upgrade", "--set " + ",".join(f"{name}={value}" for name, value in FORMER.items()))
    assert refused.returncode != 0
    assert PRESENT in refused.stderr
    assert deployed()["spec"]["replicas"] == 2
    upgraded = release("upgrade", "--set replicaCount=3,existingSecret=mine,podLabels.team=billing")
    assert upgraded.returncode == 0, upgraded.stderr
    spec = deployed()["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["metadata"]["labels"]["team"] == "billing"
    secrets = [
        each["secret"]["secretName"] for each in spec["template"]["spec"]["volumes"] if "secret" in each
    ]
    assert secrets == ["mine"]


def test_the_chart_documents_each_of_its_values() -> None:
    chart = ROOT / "deploy" / "chart"
    values = yaml.safe_load((chart / "values.yaml").read_text("utf-8"))
    schema = json.loads((chart / "values.schema.json").read_text("utf-8"))["properties"]
    described = {name for name, each in schema.items() if each.get("$ref") != "#/$defs/former"}
    assert described == {*values, "global"}
    page = (chart / "README.md").read_text("utf-8")
    assert {name for name in values if f"`{name}" not in page} == set()


def define_monitors(server: KubeApiServer) -> None:
    """Defines the resources of the prometheus-operator as it does."""
    told = subprocess.run(
        ["go", "mod", "download", "-json", OPERATOR], check=True, capture_output=True, cwd="/"
    )
    folder = Path(json.loads(told.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    for plural in ("podmonitors", "prometheusrules"):
        definition = yaml.safe_load((folder / f"monitoring.coreos.com_{plural}.yaml").read_text("utf-8"))
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        server.ask("POST", path, definition)

        def served(name: str = f"{path}/{definition['metadata']['name']}") -> bool:
            conditions = server.ask("GET", name)["status"].get("conditions") or []
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        until(served, f"{plural} are known", 30)


def collection(server: KubeApiServer, made: dict[str, Any]) -> str:
    """Returns the path to which an object is posted, as the API server tells it."""
    version = made["apiVersion"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    [plural] = [
        each["name"]
        for each in server.ask("GET", group)["resources"]
        if each["kind"] == made["kind"] and "/" not in each["name"]
    ]
    return f"{group}/namespaces/default/{plural}"
