"""docs/configuration.md has every key with its default and values, READMEs have every option of drivers."""

import json
import re
import tomllib
from dataclasses import MISSING, Field, fields
from enum import EnumType
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from outbox_api import FileText, Intake, Seam, Unit, find
from outbox_api.application.registry import Installed, installed
from outbox_api.portable.keeping import Keep
from outbox_api.seams.hooks import is_given
from outbox_core.config import parse
from outbox_core.config.decode import Raw, camel
from outbox_core.config.harvest import DEFAULT_DRIVERS, WITHOUT_EFFECT, HarvestKeys
from outbox_core.settings import Failures, Limits
from outbox_core.settings.http import HttpSettings, ProxySettings
from outbox_core.settings.logs import LoggingSettings
from outbox_core.text.duration import format_duration

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
DRIVERS = [(driver, seam) for driver in installed() for seam in driver.seams]
SHARED = {
    "data_source",
    "password",
    "table",
    "kafka",
    "leader_topic",
    "leader_group_id",
    "min_poll_interval",
    "heartbeat_timeout",
    "stop_after",
}


def documented() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^\| `([a-z][\w.]*)` \| (.*?) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len({key for key, *_ in rows}) == len(rows)
    return {key: (default, meaning) for key, default, meaning in rows}


def bare(hint: Any) -> Any:
    """Returns a type without the parts that a file never has."""
    given = [part for part in get_args(hint) if part not in {type(None), FileText}]
    inner = given[0] if _optional(hint) else hint
    return get_args(inner)[0] if get_origin(inner) is Annotated and not is_duration(inner) else inner


def is_duration(hint: Any) -> bool:
    """Whether a type is a duration."""
    return any(isinstance(extra, Unit) for extra in get_args(hint))


def values_of(hint: Any) -> str:
    """Returns the page's words for the values of an enumeration; nothing for other types."""
    inner = bare(hint)
    if get_origin(inner) is not Literal and not isinstance(inner, EnumType):
        return ""
    quoted = [f"`{value}`" for value in get_args(inner) or [member.value for member in inner]]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]])


def _optional(hint: Any) -> bool:
    return hint != Raw and bool({type(None), FileText} & set(get_args(hint)))


def default_of(field: Field[Any], hint: Any) -> str | None:
    """Returns the page's text for a default; ``None`` if the page describes it in words."""
    if field.default in {None, ""} or hint == Intake | tuple[Intake, ...] or field.default is MISSING:
        return None
    if is_duration(bare(hint)):
        return f"`{format_duration(field.default)}`"
    if isinstance(field.default, tuple):
        return f"`{json.dumps(field.default)}`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def expected(kind: type[Any], prefix: str) -> dict[str, tuple[str, str | None]]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        f"{prefix}.{camel(field.name)}": (values_of(hints[field.name]), default_of(field, hints[field.name]))
        for field in fields(kind)
        if not is_given(field) and camel(field.name) not in WITHOUT_EFFECT
    }


def everything() -> dict[str, tuple[str, str | None]]:
    keys = {
        **expected(HarvestKeys, "harvest"),
        **expected(Limits, "harvest.limits"),
        **expected(Failures, "harvest.failures"),
        **expected(LoggingSettings, "logging"),
        **expected(HttpSettings, "http"),
        **expected(ProxySettings, "http.proxy"),
        **expected(Intake, "harvest.dialect.intake"),
        **expected(Keep, "harvest.dialect.keep"),
    }
    for seam in DEFAULT_DRIVERS:
        keys[f"harvest.{seam}"] = ("", f"`{DEFAULT_DRIVERS[seam]}`")
        options = expected(find(seam, DEFAULT_DRIVERS[seam]).options, f"harvest.{seam}")
        keys |= {key: row for key, row in options.items() if key.rpartition(".")[2] not in map(camel, SHARED)}
    keys["harvest.transform"] = keys["harvest.listener"] = ("", None)
    return keys


def test_every_key_is_documented_and_no_other():
    assert set(documented()) == set(everything())


@pytest.mark.parametrize("key", everything())
def test_values_and_defaults_are_those_of_the_code(key: str):
    values, default = everything()[key]
    row = documented()[key]
    assert row[1].startswith(values)
    if default is not None:
        assert row[0] == default


@pytest.mark.parametrize(("driver", "seam"), DRIVERS, ids=lambda value: getattr(value, "name", str(value)))
def test_every_option_of_a_driver_is_in_the_readme_of_its_plugin(driver: Installed, seam: Seam):
    options = {camel(field.name) for field in fields(find(seam, driver.name).options)}
    projects = (ROOT / "plugins").glob("*/pyproject.toml")
    pages = [project.with_name("README.md") for project in projects if _name(project) == driver.distribution]
    if driver.distribution == "outbox-harvester":
        pages += [ROOT / "docs" / "electors.md", ROOT / "docs" / "transforms.md"]
    text = "".join(page.read_text("utf-8") for page in pages)
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    given = {camel(field.name) for field in fields(find(seam, driver.name).options) if is_given(field)}
    assert options - given <= {option for cell in cells for option in re.findall(r"`(\w+)`", cell)}


def _name(project: Path) -> str:
    return str(tomllib.loads(project.read_text("utf-8"))["project"]["name"])


def test_every_example_of_an_intake_can_be_used():
    examples = [text for text in PAGE.read_text("utf-8").split("```yaml\n") if "intake:" in text]
    intakes = [parse(text.split("```")[0], "docs", {}).harvest.dialect.options.intake for text in examples]
    assert [intake.order for intake in intakes] == ["", "number"]


def test_the_example_can_be_used():
    text = PAGE.read_text("utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    harvest = parse(example, "docs", {"DB_PASSWORD": "x"}).harvest
    assert harvest.limits.send_concurrency == 4
    drivers = text.split("```yaml\n")[3].split("```")[0]
    assert parse(drivers, "docs", {}).harvest.elector.driver == "static"
