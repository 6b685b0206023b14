"""Plain values are what pydantic makes of them; and reading plain settings does not import it."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, get_type_hints

import pytest
from annotated_types import Ge, Le, MultipleOf
from hypothesis import given
from hypothesis import strategies as st
from outbox_core.config.plain import UNDECIDED, convert, is_plain
from outbox_core.config.settings import EngineSettings, Failures, Limits, LoggingSettings, LogLevel
from outbox_core.config.validation import InvalidDataError, validate

HINTS = [str, bool, int, float, LogLevel, Literal["a", "b"], Mapping[str, str], Mapping[str, Any]] + [
    get_type_hints(kind, include_extras=True)[each.name]
    for kind in (EngineSettings, Failures, Limits, LoggingSettings)
    for each in fields(kind)
]
NUMBERS = st.from_regex(r"[-+]?[0-9_]{0,20}([.][0-9]{0,3})?([eE][0-9])?(ms|s|m)?", fullmatch=True)
WORDS = st.sampled_from(
    ["true", "True", "yes", "on", "1", "info", "INFO", "warning", "a", "c", "spark", "", " 1"]
)
TEXT = NUMBERS | WORDS | st.text(max_size=5)
DATA = (
    TEXT | st.lists(TEXT, max_size=2) | st.dictionaries(TEXT, TEXT | st.lists(TEXT, max_size=2), max_size=2)
)


@given(st.sampled_from(HINTS), DATA)
def test_it_is_what_pydantic_returns_or_undecided(hint: Any, data: Any):
    value = convert(hint, data)
    if value is UNDECIDED:
        return
    expected = validate(hint, data)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_all_settings_of_ours_are_plain(hint: Any):
    assert is_plain(hint)


@pytest.mark.parametrize(
    ("hint", "data", "value"),
    [
        (int, "007", 7),
        (float, "0.25", 0.25),
        (bool, "false", False),
        (LogLevel, "info", LogLevel.INFO),
        (Annotated[int, Ge(1), Le(3)] | None, "3", 3),
        (Mapping[str, Any], {"acks": "all"}, {"acks": "all"}),
    ],
)
def test_plain_values(hint: Any, data: Any, value: Any):
    assert convert(hint, data) == value


@pytest.mark.parametrize(
    ("hint", "data"),
    [
        (int, "1_000"),
        (float, "1e3"),
        (bool, "yes"),
        (LogLevel, "WARNING"),
        (Annotated[int, Ge(1), Le(3)] | None, "4"),
        (Mapping[str, Any], {"acks": ["all"]}),
        (list[str], ["a"]),
        (Annotated[int, MultipleOf(2)], "2"),
        (int | str, "1"),
    ],
)
def test_pydantic_decides_about_the_rest(hint: Any, data: Any):
    assert convert(hint, data) is UNDECIDED


def test_what_is_wrong_is_left_to_pydantic():
    with pytest.raises(InvalidDataError) as caught:
        validate(Mapping[str, int], {"a": "x"})
    assert caught.value.mistakes == [(("a",), "expected a whole number")]


def test_reading_plain_settings_does_not_import_pydantic():
    settings = """{harvest: {baseKafkaConfig: {bootstrap.servers: "localhost:9092"}, delivery: exactly-once,
        engine: inline, limits: {minPollInterval: 1s, sendConcurrency: 2}}, logging: {level: debug}}"""
    program = f"import sys; from outbox_core.config import parse; parse({settings!r})"
    program += "; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
