"""Plugins' options: dataclasses of any kind, decoded from YAML."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt
from outbox_api import Duration, PluginError
from outbox_api.seams.hooks import GIVEN
from outbox_core.config.decode import camel, decode
from outbox_core.config.document import Section, read
from outbox_core.config.environment import Environment
from outbox_core.config.problems import Problems
from outbox_core.text.spelling import nearest_key


class Colour(StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


@dataclass(frozen=True)
class Inner:
    ttl: Duration = 1.0
    peer_id: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    address: str
    ratio: float = 0.5
    retries: int = 3
    secure: bool = False
    colour: Colour = Colour.RED
    mode: Literal["fast", "safe"] = "safe"
    session_ttl: Duration | None = None
    patience: Annotated[Duration, Gt(1)] = 2.0
    leader_group_id: str | None = None
    hosts: list[str] = field(default_factory=list)
    ports: tuple[int, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    optional: Inner | None = None
    secret_key: str = field(default="", repr=False)
    pin: int = field(default=0, repr=False)
    made: int = field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.retries > 9:
            raise ValueError("nine retries are enough")


@dataclass(frozen=True)
class Unreadable:
    sink: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 - the point of the test


@dataclass(frozen=True)
class Opaque:
    lock: "Lock"


class Lock:
    """A type that YAML cannot be decoded into."""


def decoded(kind: type[Any], text: str, defaults: Mapping[str, Any] | None = None) -> tuple[Any, list[str]]:
    problems = Problems()
    section = read(text, "f.yaml", Environment({"PIN": "12x"}), problems)
    assert isinstance(section, Section)
    return decode(kind, section, "at", problems, defaults), [
        str(problem) for problem in sorted(problems.found)
    ]


def test_every_kind_of_field():
    text = """
address: host:1
ratio: 1e-3
retries: 5
secure: on
colour: dark-blue
mode: fast
sessionTtl: 1m30s
patience: 1500ms
leaderGroupID: group
hosts: [a, 1, yes]
ports: [1, 2]
properties: {a.b: yes, c: {d: off, e: [no, 7]}, f: ~}
inner: {ttl: 250ms, peerID: 42}
optional: {}
secretKey: 007
"""
    made, problems = decoded(Options, text)
    assert problems == []
    assert made == Options(
        address="host:1",
        ratio=0.001,
        retries=5,
        secure=True,
        colour=Colour.DARK_BLUE,
        mode="fast",
        session_ttl=90.0,
        patience=1.5,
        leader_group_id="group",
        hosts=["a", "1", "yes"],
        ports=(1, 2),
        properties={"a.b": "true", "c": {"d": "false", "e": ["false", "7"]}},
        inner=Inner(0.25, "42"),
        optional=Inner(),
        secret_key="007",
    )
    assert type(made) is Options
    assert pickle.loads(pickle.dumps(made)) == made


def test_every_kind_of_mistake():
    text = """
ratio: much
retries: 5.5
secure: perhaps
colour: green
mode: slow
sessionTtl: 90
patience: 1s
hosts: a
ports: [1, two]
inner: {ttl: soon, peer: x}
optional: 5
pin: 1o
made: 8
"""
    made, problems = decoded(Options, text)
    assert made is None
    assert problems == [
        "f.yaml:2: at.address: missing, and it has no default",
        "f.yaml:2: at.ratio: expected a number, found 'much'",
        "f.yaml:3: at.retries: expected a whole number, found '5.5'",
        "f.yaml:4: at.secure: expected true or false, found 'perhaps'",
        "f.yaml:5: at.colour: expected 'red' or 'dark-blue', found 'green'",
        "f.yaml:6: at.mode: expected 'fast' or 'safe', found 'slow'",
        "f.yaml:7: at.sessionTtl: expected a duration such as 500ms, 5s or 1m30s, found '90'",
        "f.yaml:8: at.patience: expected more than 1, found '1s'",
        "f.yaml:9: at.hosts: expected a list, found 'a'",
        "f.yaml:10: at.ports[1]: expected a whole number",
        "f.yaml:11: at.inner.peer: unknown key; did you mean 'peerID'?",
        "f.yaml:11: at.inner.ttl: expected a duration such as 500ms, 5s or 1m30s, found 'soon'",
        "f.yaml:12: at.optional: expected a mapping of keys to values",
        "f.yaml:13: at.pin: expected a whole number",
        "f.yaml:14: at.made: unknown key; did you mean 'mode'?",
    ]


def test_a_class_may_refuse_what_does_not_go_together():
    made, problems = decoded(Options, "address: a\nretries: 10")
    assert (made, problems) == (None, ["f.yaml:1: at: nine retries are enough"])


def test_what_the_environment_gave_is_not_shown():
    _, problems = decoded(Options, "address: a\nretries: ${PIN}")
    assert problems == ["f.yaml:2: at.retries: expected a whole number"]


def test_null_is_as_good_as_not_written():
    made, problems = decoded(Options, "address: a\nretries:\nhosts: ~\nsessionTtl: null", {"retries": 4})
    assert problems == []
    assert (made.retries, made.hosts, made.session_ttl) == (4, [], None)


def test_defaults_come_from_outside_where_nothing_is_written():
    made, problems = decoded(Options, "ratio: 0.1", {"address": "given", "ratio": 0.9, "absent_field": 1})
    assert problems == []
    assert (made.address, made.ratio) == ("given", 0.1)


@pytest.mark.parametrize("kind", [Unreadable, Opaque])
def test_options_that_cannot_come_from_yaml_are_the_plugins_fault(kind: type[Any]):
    with pytest.raises(PluginError, match=rf"^the options of .*{kind.__name__} cannot be read"):
        decoded(kind, "sink: a")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("table", "table"),
        ("data_source", "dataSource"),
        ("leader_group_id", "leaderGroupID"),
        ("io_error_backoff", "ioErrorBackoff"),
        ("id_column", "idColumn"),
        ("x_id_y", "xIdY"),
    ],
)
def test_keys_are_camel_case(name: str, key: str):
    assert camel(name) == key


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("send_buffer", "sendBuffer"),
        ("SENDBUFFER", "sendBuffer"),
        ("sendBufer", "sendBuffer"),
        ("send-buffer", "sendBuffer"),
        ("leaderGroupId", "leaderGroupID"),
        ("xyz", None),
    ],
)
def test_the_nearest_key(written: str, nearest: str | None):
    assert nearest_key(written, ["sendBuffer", "leaderGroupID", "name"]) == nearest


@dataclass(frozen=True)
class Given:
    lese: object = field(metadata=GIVEN)


def test_an_option_that_core_is_to_give_and_does_not_know_is_the_plugins_mistake():
    assert decoded(Given, "{}", {"lese": 1}) == (Given(1), [])
    with pytest.raises(PluginError, match=r"Given declares the option 'lese' as GIVEN"):
        decoded(Given, "{}")
