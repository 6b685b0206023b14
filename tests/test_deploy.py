"""The alarms and the dashboard of ``deploy/``: what is committed, what it links to, and when alarms fire."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from outbox_console.prometheus import exported
from outbox_core.monitoring.names import METRICS
from outbox_core.status.health import REMARKS, Code
from outbox_servers.services.prometheus import find_installation

from deploy.alerts import alarms
from deploy.make import DOCS, FOLDER, files
from deploy.panels import WIDTH
from deploy.series import duration

from .alarm_cases import CASES, Case
from .test_documents import ROOT, headings

RULES = FOLDER / "prometheus" / "outbox.rules.yaml"
ALARMS = {each.name: each for each in alarms()}
DASHBOARD = json.loads((FOLDER / "grafana" / "outbox.json").read_text("utf-8"))
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
NO_METRIC = {
    Code.INTAKE,
    Code.OVERDUE,
    Code.DATABASE_REFUSES,
    Code.BROKER_UNREACHABLE,
    Code.BROKER_REFUSES,
}
"""Problems that no metric tells of: what follows from them has an alarm."""


def test_the_committed_files_are_those_that_the_program_makes() -> None:
    for path, text in files(DOCS).items():
        assert (FOLDER / path).read_text("utf-8") == text, "run: python -m deploy.make"


def links(data: Any) -> Iterator[str]:
    """Returns the addresses of documents in data, without that of their folder."""
    return (found[1] for found in re.finditer(rf"{DOCS}/([\w./#-]+)", json.dumps(data)))


def test_every_link_leads_to_a_section() -> None:
    found = {*links(DASHBOARD), *links(yaml.safe_load(RULES.read_text("utf-8")))}
    assert len(found) > len(ALARMS)
    for link in found:
        page, _, anchor = link.partition("#")
        assert not anchor or anchor in headings(ROOT / "docs" / page), link


def test_the_page_says_of_every_alarm_how_urgent_it_is_and_when_it_fires() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    listed = re.findall(r"^### (Outbox\w+)\n\n(\w+)(?: after (\w+))?: ", page, re.MULTILINE)
    assert listed == [
        (each.name, each.severity.value.capitalize(), duration(each.seconds) if each.seconds else "")
        for each in ALARMS.values()
    ]


def test_every_health_problem_that_a_metric_tells_of_has_an_alarm() -> None:
    assert {each.problem for each in ALARMS.values()} - {None} == set(Code) - REMARKS - NO_METRIC


# --- the dashboard ----------------------------------------------------------------------------------


def test_the_dashboard_fits_the_types_of_grafanas_library_and_has_every_metric() -> None:
    read = Dashboard.from_json(DASHBOARD)
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == DASHBOARD
    queries = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [each.name for each in METRICS if exported(each) not in queries] == []


def test_every_variable_has_an_id_of_its_own() -> None:
    variables = DASHBOARD["templating"]["list"]
    assert [each["id"] for each in variables] == [each["name"] for each in variables]


def test_panels_are_complete_and_do_not_overlap() -> None:
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["description"], panel["title"]
        assert panel["links"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["instant"] is (panel["type"] == "stat"), "a figure must not be that of the past"
            assert (
                target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            )


# --- the alarms -------------------------------------------------------------------------------------


def test_the_rules_pass_promtool() -> None:
    check("check", "rules", str(RULES))


def test_every_alarm_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {each.alarm for each in CASES if each.fires} == set(ALARMS)
    assert {each.alarm for each in CASES if each.quiet} == set(ALARMS)


def test_alarms_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    tests = [
        {
            "interval": "30s",
            "input_series": [{"series": name, "values": values} for name, values in case.values.items()],
            "alert_rule_test": [*expected(case)],
        }
        for case in CASES
    ]
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}))
    check("test", "rules", str(file))


def expected(case: Case) -> Iterator[dict[str, Any]]:
    """Returns when promtool asks, and what it must find."""
    alarm = ALARMS[case.alarm]
    texts = alarm.rule(DOCS)["annotations"]
    said = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: case.labels[found[1]], texts["description"])
    annotations = {**texts, "description": re.sub(r"{{ \$value.*?}}", case.figure, said)}
    for minutes in case.quiet:
        yield {"eval_time": f"{minutes * 60:g}s", "alertname": case.alarm, "exp_alerts": []}
    for minutes in case.fires:
        labels = {**case.labels, "severity": alarm.severity.value}
        alerts = [{"exp_labels": labels, "exp_annotations": annotations}]
        yield {"eval_time": f"{minutes * 60:g}s", "alertname": case.alarm, "exp_alerts": alerts}


def check(*arguments: str) -> None:
    done = subprocess.run(
        [*find_installation().tool, *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
