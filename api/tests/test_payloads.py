"""Records of models: of pydantic, msgspec and dataclasses, and as events of CloudEvents."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from outbox_api import Record, RecordError, Stasher
from outbox_api.application.cloudevents import event_headers
from outbox_api.base.payloads import to_json, to_plain

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
DUE = WHEN.date()
NUMBER = UUID(int=7)


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    goods: str
    price: Decimal


@dataclass
class DataOrder:
    id: UUID = NUMBER
    at: datetime = WHEN
    due: date = DUE
    colour: Colour = Colour.RED
    lines: list[Line] = field(default_factory=lambda: [Line("tee ☕", Decimal("1.50"))])


class PydanticLine(pydantic.BaseModel):
    goods: str = "tee ☕"
    price: Decimal = Decimal("1.50")


class PydanticOrder(pydantic.BaseModel):
    id: UUID = NUMBER
    at: datetime = WHEN
    due: date = DUE
    colour: Colour = Colour.RED
    lines: list[PydanticLine] = [PydanticLine()]


class StructLine(msgspec.Struct):
    goods: str = "tee ☕"
    price: Decimal = Decimal("1.50")


class StructOrder(msgspec.Struct):
    id: UUID = NUMBER
    at: datetime = WHEN
    due: date = DUE
    colour: Colour = Colour.RED
    lines: list[StructLine] = msgspec.field(default_factory=lambda: [StructLine()])


ORDERS = [DataOrder(), PydanticOrder(), StructOrder()]
WRITTEN = {
    "id": str(NUMBER),
    "due": "2030-01-02",
    "colour": "red",
    "lines": [{"goods": "tee ☕", "price": "1.50"}],
}


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_model_of_any_library_becomes_the_same_json(order: Any) -> None:
    record = Record.of("orders", "42", order, [("type", "paid")])
    assert (record.topic, record.key, record.headers) == ("orders", "42", (("type", "paid"),))
    assert isinstance(record.value, str)
    assert "☕" in record.value
    written = json.loads(record.value)
    assert datetime.fromisoformat(written.pop("at")) == WHEN
    assert written == WRITTEN
    several = Record.of("orders", "42", {"orders": [order]})
    assert isinstance(several.value, str)
    assert json.loads(several.value)["orders"][0].items() >= written.items()


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_model_of_any_library_becomes_the_same_plain_data(order: Any) -> None:
    lines = [{"goods": "tee ☕", "price": Decimal("1.50")}]
    plain = {"id": NUMBER, "at": WHEN, "due": DUE, "colour": "red", "lines": lines}
    assert to_plain([order]) == [plain]


def test_no_model_is_a_tombstone() -> None:
    assert Record.of("orders", "42", None) == Record("orders", "42")


def test_a_models_own_way_to_write_itself_is_kept() -> None:
    class Cased(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(serialize_by_alias=True)
        order_id: int = pydantic.Field(1, alias="orderId")

    class Renamed(msgspec.Struct, rename="camel", tag="order"):
        order_id: int = 1

    assert Record.of("t", "k", Cased(orderId=1)).value == '{"orderId":1}'
    assert Record.of("t", "k", Renamed()).value == '{"type":"order","orderId":1}'


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (object(), "object cannot be made into a value: JSON has nothing for object"),
        ({"secret": b"\xff"}, "dict cannot be made into a value: JSON has nothing for bytes"),
        (float("nan"), "float cannot be made into a value: Out of range float values"),
        ("{}", r"it is a value already: write Record\(topic, key, value\)"),
        (b"{}", "it is a value already"),
    ],
)
def test_what_cannot_be_made_into_a_value_is_refused_in_one_sentence(model: object, why: str) -> None:
    with pytest.raises(RecordError, match=why) as refused:
        Record.of("orders", "42", model)
    assert str(refused.value).endswith("(topic 'orders', key '42')")
    assert "\n" not in str(refused.value)


class Guarded(pydantic.BaseModel):
    number: int

    @pydantic.field_serializer("number")
    def refused(self, number: int) -> int:
        raise ValueError(f"{number} is wrong")


@pytest.mark.parametrize(
    ("serializer", "why"),
    [
        (
            lambda model, _: Guarded.model_validate({"number": f"x{model.number}"}),
            "ValidationError: int_parsing",
        ),
        (to_json, r"PydanticSerializationError \("),
    ],
)
def test_an_error_of_pydantic_quotes_nothing_of_the_model(serializer: Any, why: str) -> None:
    with pytest.raises(RecordError, match=why) as refused:
        Record.of("orders", "42", Guarded(number=4711), serializer=serializer)
    assert "4711" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_another_serializer_is_given_the_model_and_the_topic() -> None:
    record = Record.of("orders", "42", [1, 2], serializer=lambda model, topic: f"{topic}: {sum(model)}")
    assert record.value == "orders: 3"


def test_half_of_a_surrogate_pair_is_refused_by_the_stasher() -> None:
    record = Record.of("t", "k", {"a": "\ud800"})
    with (
        sqlite3.connect(":memory:") as connection,
        pytest.raises(RecordError, match="surrogates not allowed"),
    ):
        Stasher("outbox", "sqlite").prepare(connection.execute("BEGIN")).stash(record)


def test_a_dataclass_imports_neither_pydantic_nor_msgspec() -> None:
    code = """if True:
        import sys, dataclasses
        from outbox_api import Record
        Order = dataclasses.make_dataclass("Order", ["id"])
        heavy = {"pydantic", "msgspec", "confluent_kafka"}
        print(Record.of("t", "k", Order(1)).value, heavy & sys.modules.keys())
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == '{"id":1} set()'


def test_an_event_has_its_attributes_as_headers() -> None:
    headers = event_headers(source="/shop", type="order.paid", id="7", time=WHEN)
    assert dict(headers) == {
        "ce_specversion": "1.0",
        "ce_source": "/shop",
        "ce_type": "order.paid",
        "ce_id": "7",
        "ce_time": "2030-01-02T03:04:05+00:00",
        "content-type": "application/json",
    }
    assert "content-type" not in dict(event_headers(source="/shop", type="paid", content_type=None))


def test_an_event_has_an_id_of_its_own_and_the_present_time() -> None:
    before = datetime.now(UTC)
    one, two = (dict(event_headers(source="/shop", type="paid")) for _ in range(2))
    assert one["ce_id"] != two["ce_id"]
    assert before <= datetime.fromisoformat(str(one["ce_time"])) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"source": ""}, "source is text, and not empty"),
        ({"type": ""}, "type is text"),
        ({"id": ""}, "id is text"),
        ({"time": datetime(2030, 1, 2)}, "needs a time zone"),  # noqa: DTZ001 - without one
    ],
)
def test_an_event_without_its_attributes_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(RecordError, match=why):
        event_headers(**{"source": "/shop", "type": "paid"} | wrong)
