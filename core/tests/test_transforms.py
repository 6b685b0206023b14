"""What a chain makes of a row, what the transforms of core do, and how they are configured."""

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError, MarkedRecord, Outgoing, PluginError, Seam, TransformError
from outbox_core.config import parse
from outbox_core.settings import Choice
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.content import json_value
from outbox_core.transforms.shipped import Match

ROW = MarkedRecord(
    7,
    "orders",
    "k",
    '{"region":"eu","customer":{"email":"a@b.example","name":"Ärzte"},"cards":[{"number":1},{"number":2}]}',
    [("kind", "paid"), ("kind", b"late"), ("raw", b"\xff")],
    timestamp_ms=1_600_000_000_123,
)


def chain(yaml: str, identity: str = "box") -> Chain:
    lines = "".join(f"    {line}\n" for line in yaml.strip().splitlines())
    harvest = parse(f"harvest:\n  dataSource: x\n  transform:\n{lines}", "file", {}).harvest
    return Chain.of(pickle.loads(pickle.dumps(harvest.transforms)), lambda: identity)


def only(yaml: str, row: MarkedRecord = ROW) -> Outgoing:
    [made] = chain(yaml).outputs(row)
    return made


class Doubles:
    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record, record._replace(topic="copy")]


class Breaks:
    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record._replace(topic=json.loads(str(record.value))["secret"]["deeper"])]


class Rekeys:
    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record._replace(key="other")]


class Replaces:
    def __init__(self, **fields: object) -> None:
        self.fields = fields

    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record._replace(**self.fields)]  # type: ignore[arg-type]  # what a plugin may do


class Exits:
    def apply(self, record: Outgoing) -> list[Outgoing]:
        raise SystemExit(record.value)


class ReturnsNothingUseful:
    def apply(self, record: Outgoing) -> list[Outgoing]:
        return None  # type: ignore[return-value]  # as a plugin may


def test_without_transforms_there_is_no_chain():
    none = Chain.of((), lambda: pytest.fail("nobody needs the identity"))
    assert not none
    assert none.fingerprint == ""


def test_a_row_reaches_the_first_transform_as_it_is():
    assert list(Chain([], "").outputs(ROW)) == [
        Outgoing(7, 0, "orders", "k", ROW.value, tuple(ROW.headers), None, 1_600_000_000_123)
    ]


def test_a_topic_is_made_of_what_the_record_has():
    assert (
        only("- driver: topic\n  to: '{topic}.{field.region}.{header.kind}.{key}'").topic
        == "orders.eu.late.k"
    )
    assert only("- driver: topic\n  to: '{{{topic}}}'").topic == "{orders}"


@pytest.mark.parametrize(
    "missing", ["header.none", "header.raw", "field.none", "field.customer", "field.cards.7"]
)
def test_a_record_without_what_a_template_names_fails(missing: str):
    with pytest.raises(TransformError, match=f"transform 'topic': .* '{missing.partition('.')[2]}'"):
        only(f"- driver: topic\n  to: '{{{missing}}}'")


def test_headers_are_set_and_removed():
    made = only("- driver: headers\n  set: {kind: '{field.region}', at: home}\n  remove: [raw, none]")
    assert made.headers == (("kind", "eu"), ("at", "home"))


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("topic: 'ord*'", True),
        ("topic: 'Ord*'", False),
        ("headers: {kind: 'la?e'}", True),
        ("headers: {raw: '*'}", False),
        ("fields: {region: eu, customer.name: 'Ä*'}", True),
        ("fields: {region: us}", False),
        ("fields: {cards.1.number: '2'}", True),
        ("fields: {customer: '*'}", False),
        ("topic: other, fields: {any: '*'}", False),
    ],
)
def test_a_filter_keeps_or_drops(condition: str, meets: bool):
    assert bool(chain(f"- driver: filter\n  keep: {{{condition}}}").outputs(ROW)) is meets
    assert bool(chain(f"- driver: filter\n  drop: {{{condition}}}").outputs(ROW)) is not meets


def test_a_filter_looks_into_a_value_only_where_the_rest_is_met():
    text = ROW._replace(value="no JSON")
    assert not chain("- driver: filter\n  keep: {topic: other, fields: {a: b}}").outputs(text)
    with pytest.raises(TransformError, match="transform 'filter': the value is not JSON"):
        chain("- driver: filter\n  keep: {topic: orders, fields: {a: b}}").outputs(text)
    tombstone = ROW._replace(value=None)
    assert chain("- driver: filter\n  drop: {fields: {a: b}}").outputs(tombstone)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("true", "true"),
        ("1.50", "1.5"),
        ("0.1000000000000000001", "0.1000000000000000001"),
        ('"x"', "x"),
        ("12", "12"),
    ],
)
def test_fields_are_compared_as_json_writes_them(text: str, found: str):
    record = Outgoing(1, 0, "t", "k", f'{{"a": {text}}}')
    assert Match(fields={"a": found}).meets(record)
    assert not Match(fields={"a": "null"}).meets(record)


def test_redacted_fields_are_gone():
    made = only("- driver: redact\n  fields: [customer.email, cards.*.number, none.such]")
    assert made.value == '{"region":"eu","customer":{"name":"Ärzte"},"cards":[{},{}]}'


def test_redacted_fields_are_replaced():
    made = only("- driver: redact\n  fields: ['customer.*', cards.0]\n  replacement: '***'")
    assert json.loads(str(made.value)) == {
        "region": "eu", "customer": {"email": "***", "name": "***"}, "cards": ["***", {"number": 2}],
    }  # fmt: skip


def test_redaction_leaves_no_second_value_of_a_name():
    row = ROW._replace(value=b'{"email": "a@b.example", "email": 1, "other": {"email": "kept"}}')
    made = only("- driver: redact\n  fields: [email]", row)
    assert made.value == b'{"other":{"email":"kept"}}'


@pytest.mark.parametrize(
    "value",
    ["no JSON", b"\xff", '{"a": NaN}', "[" * 100_000, '{"a": 1e999}', '{"a": 0.12345678901234567890}'],
)
def test_what_cannot_be_redacted_is_not_published(value: str | bytes):
    with pytest.raises(TransformError, match="transform 'redact': the value "):
        only("- driver: redact\n  fields: [email]", ROW._replace(value=value))


def test_a_tombstone_has_nothing_to_redact():
    assert only("- driver: redact\n  fields: [email]", ROW._replace(value=None)).value is None


def test_numbers_that_are_not_compared_may_be_rounded():
    assert json_value(Outgoing(1, 0, "t", "k", '{"a": 0.12345678901234567890}'))


def test_the_identity_is_of_outbox_row_and_part():
    assert only("- identity").headers[-1] == ("outbox-id", "box:7")
    twice = ROW._replace(headers=[("me", "old")])
    assert only("- driver: identity\n  header: me", twice).headers == (("me", "box:7"),)
    identity = chain("- identity")._transforms
    copies = Chain([("doubles", Doubles()), *identity], "").outputs(ROW)
    assert [each.headers[-1] for each in copies] == [("outbox-id", "box:7"), ("outbox-id", "box:7.1")]


def test_an_event_is_what_the_specification_calls_binary_mode():
    made = only("- driver: cloudevents\n  source: /shop\n  contentType: application/json")
    assert made.value == ROW.value
    assert dict(made.headers) | {"kind": b"late"} == {
        "kind": b"late",
        "raw": b"\xff",
        "ce_specversion": "1.0",
        "ce_source": "/shop",
        "ce_type": "orders",
        "ce_id": "box:7",
        "ce_time": "2020-09-13T12:26:40.123+00:00",
        "content-type": "application/json",
    }
    own = only(
        "- driver: cloudevents\n  source: /{key}\n  type: '{header.kind}'\n  id: '{field.region}'\n"
        "  time: '{header.kind}'",
        ROW._replace(timestamp_ms=None),
    )
    assert {"ce_source": "/k", "ce_type": "late", "ce_id": "eu", "ce_time": "late"}.items() <= dict(
        own.headers
    ).items()
    assert "content-type" not in dict(own.headers)


def test_transforms_follow_each_other():
    made = only("- driver: topic\n  to: a.{topic}\n- driver: topic\n  to: b.{topic}")
    assert made.topic == "b.a.orders"
    assert (
        chain("- driver: filter\n  keep: {topic: none}\n- driver: topic\n  to: '{field.none}'").outputs(ROW)
        == []
    )


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (Breaks(), r"transform 'mine' raised KeyError \(test_transforms.py, line \d+\)"),
        (Rekeys(), "transform 'mine' has changed the record's key"),
        (ReturnsNothingUseful(), r"transform 'mine' raised TypeError"),
        (Exits(), r"transform 'mine' raised SystemExit"),
        (Replaces(topic=None), "after its transforms, a record's topic is not text"),
        (Replaces(value={"hush": 1}), "after its transforms, a record's value is not text, bytes or None"),
        (Replaces(headers=None), "after its transforms, a record's headers are pairs"),
        (Replaces(headers=(("hush", 1),)), "after its transforms, a record's headers are pairs"),
        (Replaces(partition="hush"), "after its transforms, a record's partition or timestamp"),
        (Replaces(timestamp_ms="hush"), "after its transforms, a record's partition or timestamp"),
        (Replaces(partition=-2), "after its transforms, the partition is -2"),
        (Replaces(timestamp_ms=0), "after its transforms, the timestamp is 0"),
    ],
)
def test_a_transform_that_fails_is_named_and_no_value_is(transform: object, reason: str):
    row = ROW._replace(value='{"secret": {"hush": 1}}')
    with pytest.raises(TransformError, match=reason) as caught:
        Chain([("mine", transform)], "").outputs(row)  # type: ignore[list-item]  # what a plugin may be
    assert "hush" not in str(caught.value)


def test_a_transform_may_name_no_partition_and_no_time_as_kafka_does():
    (made,) = Chain([("mine", Replaces(partition=-1, timestamp_ms=-1))], "").outputs(ROW)
    assert (made.partition, made.timestamp_ms) == (None, None)


def test_equal_chains_have_equal_fingerprints_and_others_have_others():
    yaml = "- driver: redact\n  fields: [a]\n- identity"
    others = [
        "- identity\n- driver: redact\n  fields: [a]",
        "- driver: redact\n  fields: [a, b]\n- identity",
        "- driver: redact\n  fields: [a]",
    ]
    assert chain(yaml).fingerprint == chain(yaml).fingerprint
    assert len({chain(each).fingerprint for each in (yaml, *others)}) == 4
    assert chain(yaml).fingerprint != chain(yaml, "another").fingerprint


@pytest.mark.parametrize(
    ("yaml", "error"),
    [
        (" redact", r"file:3: harvest\.transform: expected a list"),
        ("\n  - redcat", r"file:4: harvest\.transform\[0\]\.driver: .*did you mean 'redact'"),
        (
            "\n  - identity\n  - kafka",
            r"file:5: harvest\.transform\[1\]\.driver: .*not serve the transform seam",
        ),
        ("\n  -", r"file:4: harvest\.transform\[0\]: expected the name of a driver"),
        ("\n  - driver: redact\n    feilds: [a]", r"file:5: .*unknown key; did you mean 'fields'"),
        ("\n  - driver: redact\n    fields: [a..b]", r"file:4: .*'fields' are paths"),
        ("\n  - driver: topic\n    to: '{topc}'", r"file:4: .*did you mean '\{topic\}'"),
        ("\n  - driver: topic\n    to: '{heder.name}'", r"file:4: .*did you mean '\{header.NAME\}'"),
        ("\n  - driver: topic\n    to: '{topic!r}'", r"file:4: .*unknown placeholder '\{topic\}'; there are"),
        ("\n  - driver: topic\n    to: '{'", r"file:4: .*is no template"),
        ("\n  - driver: filter", r"file:4: .*neither keeps nor drops"),
        ("\n  - driver: filter\n    drop: {}", r"file:\d: harvest\.transform\[0\]\.drop: names no condition"),
        ("\n  - driver: headers", r"file:4: .*neither sets nor removes"),
        ("\n  - driver: cloudevents\n    source: '{x}'", r"file:4: .*unknown placeholder"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(yaml: str, error: str):
    with pytest.raises(ConfigError, match=error):
        parse(f"harvest:\n  dataSource: x\n  transform:{yaml}\n", "file", {})


def test_an_outbox_without_transforms_has_none():
    assert parse("harvest:\n  dataSource: x\n  transform:\n", "file", {}).harvest.transforms == ()


@dataclass(frozen=True)
class NoSuch:
    """Options of a driver that is not installed."""


def test_a_transform_that_is_not_installed_where_lanes_run_is_named():
    choice = Choice(Seam.TRANSFORM, "nosuch", NoSuch())  # type: ignore[var-annotated]  # of no seam
    with pytest.raises(PluginError, match="nosuch"):
        Chain.of([replace(choice)], str)


def test_the_examples_of_the_page_can_be_used():
    page = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text("utf-8")
    yaml, module = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("yaml", "python"))
    harvest = parse(yaml.replace("harvest:", "harvest:\n  dataSource: x"), "page", {}).harvest
    assert [each.driver for each in harvest.transforms] == ["filter", "redact", "topic", "identity"]
    names: dict[str, Any] = {"__name__": "my_module"}
    exec(module, names)
    driver = names["outbox_transform"]()
    copies = Chain([("copy", driver.create(driver.options("archive")))], "").outputs(ROW)
    assert [each.topic for each in copies] == ["orders", "archive"]
