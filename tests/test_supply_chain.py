"""What the distributions consist of: a list with the wheels, and bounds on what they depend on."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECTS = [
    tomllib.loads(file.read_text())
    for pattern in ("*/pyproject.toml", "plugins/*/pyproject.toml", "examples/*/pyproject.toml")
    for file in ROOT.glob(pattern)
]
LOCKED = {
    (package["name"], package["version"]): package
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    if "version" in package
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", each)[0].replace(".", "-") for each in requirements}


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("sbom") / "outbox.cdx.json"
    subprocess.run(["make", "--silent", "sbom", f"SBOM={file}"], cwd=ROOT, check=True, timeout=120)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_the_bill_of_materials_has_our_distributions_and_all_that_they_need(bill: dict[str, Any]) -> None:
    assert bill["bomFormat"] == "CycloneDX"
    references = {each["name"]: each["bom-ref"] for each in bill["components"]}
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    for project in PROJECTS:
        name = project["project"]["name"]
        if name == "outbox-h2":
            continue  # somebody else's
        for needed in names(project["project"]["dependencies"]):
            assert references[needed] in needs[references[name]], f"{name} needs {needed}"


def test_the_bill_of_materials_has_the_versions_and_hashes_that_are_locked(bill: dict[str, Any]) -> None:
    for component in bill["components"]:
        package = LOCKED[component["name"], component["version"]]
        if component["name"].startswith("outbox-"):
            continue
        assert component["purl"].startswith("pkg:pypi/")
        hashes = {
            each["content"] for reference in component["externalReferences"] for each in reference["hashes"]
        }
        locked = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        assert {each["hash"].removeprefix("sha256:") for each in locked} == hashes


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project["project"]["name"])
def test_every_dependency_has_an_upper_bound(project: dict[str, Any]) -> None:
    extras = project["project"].get("optional-dependencies", {}).values()
    needed = [each for extra in extras for each in extra] + project["project"]["dependencies"]
    needed += project["build-system"]["requires"]
    unbounded = [each for each in needed if "<" not in each.partition(";")[0]]
    assert unbounded == [], "a major version may break it"


def test_what_builds_the_wheels_is_pinned_with_hashes() -> None:
    lines = (ROOT / ".ci/build-constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if re.match(r"[a-z]", line)]
    assert names(pinned) >= {"hatchling", "packaging", "pathspec", "pluggy"}
    assert all(re.fullmatch(r"[a-z-]+==[0-9.]+ \\", line) for line in pinned)


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return found


def test_the_hosted_workflow_runs_what_must_pass_on_every_python() -> None:
    [job] = workflow("ci.yml")["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {project["project"]["requires-python"] for project in PROJECTS} == {">=3.11"}
    assert job["steps"][-1]["run"].startswith(".ci/run ")


def test_a_hosted_release_is_trusted_without_a_token() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    [job] = workflow("release.yml")["jobs"].values()
    assert job["permissions"]["id-token"] == "write"
    assert ".ci/release" in job["steps"][-1]["run"]
    assert "secrets." not in text
