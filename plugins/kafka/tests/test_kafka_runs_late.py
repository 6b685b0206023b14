"""Runs over a network that cuts connections and delays requests, and at brokers that refuse."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from outbox_api import MarkedRecord
from outbox_kafka.sender import KafkaSender
from outbox_servers.services.kafka import KafkaBroker

from .frame_proxy import PRODUCE, FrameProxy, first_refused
from .kafka_access import alter_topic, committed, deliver, publisher
from .run_senders import Sent, check_prefixes, gather_all, hand, run, runs, send_runs

pytestmark = pytest.mark.slow

_ONE_BY_ONE = {"linger_ms": 0, "batch_num_messages": 1}


class Place:
    """A broker, and the proxy in front of it."""

    def __init__(self) -> None:
        self.proxy = FrameProxy(lambda: self.broker.proxied_port)
        self.broker = KafkaBroker(proxy_port=self.proxy.port)

    def open(self, topic: str, **settings: object) -> KafkaSender:
        kafka = publisher(f"127.0.0.1:{self.proxy.port}", **settings)
        kafka.prepare([topic], 1)
        sender = kafka.open("outbox.0")
        sender._topics.existing.add(topic)
        return sender


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    with place.broker:
        yield place
    place.proxy.close()


@pytest.fixture(autouse=True)
def plain(place: Place) -> Iterator[None]:
    yield
    place.proxy.alter = place.proxy.alter_request = bytes
    place.proxy.release()


def refused_once(topic: str, number: int) -> Callable[[bytes], bytes]:
    """Returns how to alter requests so that the broker refuses one Produce request of runs for the moment."""
    refuse, count = first_refused(topic, ".runs"), 0

    def alter(request: bytes) -> bytes:
        nonlocal count
        if int.from_bytes(request[:2]) != PRODUCE or b".runs" not in request:
            return request
        count += 1
        return request if count < number else refuse(request)

    return alter


@pytest.mark.parametrize("number", [1, 2, 3, 20])
@pytest.mark.parametrize("settings", [{}, _ONE_BY_ONE], ids=["default batches", "batches of one"])
def test_a_request_that_the_broker_refuses_for_the_moment(
    place: Place, topic: str, settings: dict[str, object], number: int
) -> None:
    sender, wanted = place.open(topic, **settings), runs(topic, 3, 50)
    place.proxy.alter_request = refused_once(topic, number)
    sent = send_runs(sender, wanted)
    sender.close(5)
    assert not sent.failed
    check_prefixes(place.broker.bootstrap, wanted, sent)


def test_a_connection_that_is_cut(place: Place, topic: str) -> None:
    sender, wanted = place.open(topic, batch_num_messages=10), runs(topic, 3, 500)

    def cut() -> None:
        assert place.proxy.held.wait(30)
        place.proxy.cut()
        place.proxy.release()  # the request arrives all the same, and its repetition

    sent = send_runs(sender, wanted, between=lambda: place.proxy.hold(PRODUCE), amid=cut)
    sender.close(5)
    assert not sent.failed
    check_prefixes(place.broker.bootstrap, wanted, sent)


@pytest.mark.parametrize("seconds", [3.0, 12.0])
def test_a_request_that_is_delayed(place: Place, topic: str, seconds: float) -> None:
    """The connection is cut, the request is repeated, and the first copy arrives much later."""
    sender, wanted = place.open(topic, batch_num_messages=10), runs(topic, 3, 500)

    def cut() -> None:
        assert place.proxy.held.wait(30)
        place.proxy.cut()

    def deliver_late() -> None:
        place.proxy.held.wait(30)
        time.sleep(seconds)
        place.proxy.release()

    with ThreadPoolExecutor() as pool:
        pool.submit(deliver_late)
        sent = send_runs(sender, wanted, between=lambda: place.proxy.hold(PRODUCE), amid=cut)
    time.sleep(1)
    deliver(sender, MarkedRecord(9999, topic, "end", "9999"))
    sender.close(5)
    assert not sent.failed
    check_prefixes(place.broker.bootstrap, wanted, sent)


def test_swallowed_answers(place: Place, topic: str) -> None:
    sender, wanted = place.open(topic, batch_num_messages=10, socket_timeout_ms=1000), runs(topic, 3, 500)
    swallowed = 0

    def swallow(answer: bytes) -> bytes:
        nonlocal swallowed
        if topic.encode() in answer and swallowed < 3:
            swallowed += 1
            raise OSError("the connection is closed instead")
        return answer

    def begin() -> None:
        place.proxy.alter = swallow

    sent = send_runs(sender, wanted, between=begin)
    sender.close(5)
    assert swallowed == 3
    assert not sent.failed
    check_prefixes(place.broker.bootstrap, wanted, sent)


def test_an_acknowledgement_without_an_offset(place: Place, topic: str) -> None:
    sender, wanted = place.open(topic, **_ONE_BY_ONE), [run(topic, "k", 50)]
    name, answers = bytes([len(topic) + 1]) + topic.encode() + b"\x02", 0

    def duplicate(answer: bytes) -> bytes:
        nonlocal answers
        if (at := answer.find(name)) < 0:
            return answer
        answers += 1
        if answers != 10:
            return answer
        at += len(name) + 4
        number = (46).to_bytes(2) + (-1).to_bytes(8, signed=True)
        return answer[:at] + number + answer[at + len(number) :]

    def begin() -> None:
        place.proxy.alter = duplicate

    sent = send_runs(sender, wanted, between=begin)
    sender.close(5)
    assert min(sent.failed_ids()) == 10
    assert "without an offset" in sent.failed[0].reason
    check_prefixes(place.broker.bootstrap, wanted, sent)


@pytest.mark.parametrize("how", ["given up", "closed"])
def test_what_is_not_promised_when_a_producer_goes_with_requests_out(
    place: Place, topic: str, how: str
) -> None:
    """Its late request is written behind later records: at most the one run of a key."""
    sender, records = place.open(topic, delivery_timeout_ms=2000), run(topic, "k", 22)
    sent = send_runs(sender, [records[:2]])
    place.proxy.hold(PRODUCE)
    began = time.monotonic()
    hand(sender, sent, [], [each._replace(partition=0) for each in records[2:20]])
    if how == "given up":
        gather_all(sender, sent, 30)
        assert 2 <= time.monotonic() - began < 5
        assert [each.suspect for each in sent.failed] == [True] * 18
    else:
        assert not sender.close(0.5).delivered
        assert time.monotonic() - began < 3
        sender = place.open(topic, delivery_timeout_ms=2000)
    deliver(sender, *records[2:])
    place.proxy.release()
    time.sleep(1)
    sender.close(5)
    values = [int(message.value() or b"") for message in committed(place.broker.bootstrap, topic, 1)]
    assert values == [*range(22), *range(2, 20)]


def test_a_record_that_is_refused_at_the_beginning(place: Place, topic: str) -> None:
    """Of a producer that it does not know a broker would take what comes behind the refused one."""
    sender, wanted = place.open(topic, **_ONE_BY_ONE), [run(topic, "k", 50)]
    alter_topic(place.broker.bootstrap, topic, "max.message.bytes", "30000")
    wanted[0][1] = wanted[0][1]._replace(value=os.urandom(40_000))
    sent = send_runs(sender, wanted)
    assert len(sent.delivered) == 1
    assert len(sent.failed) == 49
    assert check_prefixes(place.broker.bootstrap, wanted, sent) == 1
    sent = send_runs(sender, [run(topic, "other", 50)])
    assert not sent.failed
    sender.close(5)


def test_the_first_record_of_a_run_that_is_refused_ends_no_other_run(place: Place, topic: str) -> None:
    sender, other = place.open(topic), run(topic, "other", 50)
    alter_topic(place.broker.bootstrap, topic, "max.message.bytes", "30000")
    send_runs(sender, [run(topic, "before", 2)])
    large = MarkedRecord(100, topic, "large", os.urandom(40_000))
    sent = Sent()
    hand(sender, sent, [other[0], large], [])
    hand(sender, sent, [], [each._replace(partition=0) for each in other[1:]])
    gather_all(sender, sent, 30)
    assert [(each.record.id, each.suspect) for each in sent.failed] == [(large.id, False)]
    sender.close(5)
