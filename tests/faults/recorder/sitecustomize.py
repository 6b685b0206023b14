"""Writes what the lanes of a harvester ask of database and broker, and what is answered, to a file.

Python imports it as it starts, in every process of a harvester whose ``PYTHONPATH`` has this folder. It wraps
the places through which the product calls its servers; each call is two lines of JSON, before and after it.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from outbox_api import Batch, LeadershipLost
from outbox_core.delivery.checkpoint import decode
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.lanes.recovery import ConnectedServers
from outbox_core.transforms.senders import TransformingTransactionalSender
from outbox_kafka.transactional_producer import TransactionalProducer

VARIABLE = "OUTBOX_TRACE"
"""The environment variable with the name of the file."""

_file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
_numbers = itertools.count(1)
_here = threading.local()
"""Of this thread: ``lane``, the last one that it has entered or opened; ``token``, that of its leadership;
``mute`` within a recorded call."""

Said = dict[str, Any]
Tell = Callable[..., Said]


def _write(**event: Any) -> None:
    line = json.dumps({"t": time.monotonic(), "pid": os.getpid(), **event}, separators=(",", ":"))
    os.write(_file, line.encode() + b"\n")


def _record(do: str, call: Callable[[], Any], asks: Said, tell: Tell, lane: int | None = None) -> Any:
    if getattr(_here, "mute", False):
        return call()
    if lane is not None:
        _here.lane = lane
    number = next(_numbers)
    _write(call=number, do=do, lane=getattr(_here, "lane", None), by=getattr(_here, "token", None), **asks)
    try:
        answer = call()
    except BaseException as error:
        lost = isinstance(error, LeadershipLost)
        _write(ends=number, fails=type(error).__name__, says=str(error)[:300], lost=lost)
        raise
    _write(ends=number, **tell(answer))
    return answer


def _nothing(*_: object) -> Said:
    return {}


def _runs(batches: Sequence[Batch]) -> list[Any]:
    return [batch.runs for batch in batches]


def _checkpoint(text: str) -> Said:
    published, attempted = decode(text)
    return {"published": _runs(published), "attempted": attempted and attempted.runs}


def _advanced(answer: Any) -> Said:
    rows = [[record.id, record.key] for record in answer.records]
    return {"rows": rows, "locked": _runs(answer.locked)}


class _Table:
    """The outbox of a recovery."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def bump(self, lanes: int, holder: str, *rest: Any) -> int:
        _here.lane = _here.token = None
        token: int = _record(
            "bump",
            lambda: self._table.bump(lanes, holder, *rest),
            {"lanes": lanes},
            lambda token: {"token": token},
        )
        return token

    def enter(self, lane: int, lanes: int, token: int) -> Any:
        _here.token = token
        asks = {"lanes": lanes, "token": token}
        call = functools.partial(self._table.enter, lane, lanes, token)
        return _record("enter", call, asks, lambda fence: {"epoch": fence.epoch}, lane)

    def transactional_lanes(self) -> Any:
        def tell(notes: Any) -> Said:
            return {"notes": {lane: [note.lanes, note.sender, note.location] for lane, note in notes.items()}}

        return _record("recall", self._table.transactional_lanes, {}, tell)

    def rows(self, batch: Batch) -> Any:
        asks = {"batch": batch.runs}
        return _record(
            "read", lambda: self._table.rows(batch), asks, lambda rows: {"rows": [row.id for row in rows]}
        )

    def advance(self, fence: Any, finished: Sequence[Batch], *rest: Any) -> Any:
        call = functools.partial(self._table.advance, fence, finished, *rest)
        return _record("purge", call, {"finished": _runs(finished)}, _advanced)

    def set_transactional(self, fence: Any, note: Any) -> None:
        asks = {"noted": note and [note.lanes, note.sender, note.location]}
        _record("note", lambda: self._table.set_transactional(fence, note), asks, _nothing)


def _spent(sender: Any) -> bool:
    """Returns whether the producer of a transforming sender has ended."""
    return sender._sender._producer.error is not None


def _wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(self, functools.partial(method, self, *arguments, **named), *arguments)

    setattr(owner, name, wrapped)


def _connect(self: ConnectedServers, call: Callable[[], Any], *_: Any) -> None:
    call()
    self.table = _Table(self.table)


def _open(_: Any, call: Callable[[], Any], name: str) -> Any:
    return _record("open", call, {"name": name}, lambda sender: {"spent": _spent(sender)})


def _look(_: Any, call: Callable[[], Any], location: str = "") -> Any:
    def tell(attempt: Any) -> Said:
        return _checkpoint(attempt.checkpoint) if attempt else {"missing": True}

    return _record("look", call, {"location": location}, tell)


def _find(_: Any, call: Callable[[], Any], records: Sequence[Any], *__: Any) -> Any:
    asks = {"rows": [record.id for record in records]}
    return _record(
        "find",
        call,
        asks,
        lambda found: {"rows": sorted(found.published), "undecided": list(found.undecided)},
    )


def _publish(self: Any, call: Callable[[], Any], records: Sequence[Any], checkpoint: str) -> Any:
    def tell(failures: Any) -> Said:
        return {"failed": [failure.record.id for failure in failures], "spent": _spent(self)}

    asks = {"rows": [record.id for record in records], **_checkpoint(checkpoint)}
    lane, _here.token = self._recorded
    return _record("publish" if records else "freshen", call, asks, tell, lane)


def _at_database(do: str, asks: Callable[[Any], Said], tell: Callable[[Any], Said]) -> Callable[..., Any]:
    def around(self: Any, call: Callable[[], Any], *arguments: Any) -> Any:
        def muted() -> Any:
            _here.mute = True
            try:
                return call()
            finally:
                _here.mute = False

        _here.token = self.fence.token
        return _record(do, muted, asks(arguments[0]), tell, self.fence.lane)

    return around


def _asks_to_advance(asked: Any) -> Said:
    return {"finished": _runs(asked.finished), "pending": _runs(asked.pending), "limit": asked.limit}


def _asks_to_park(asked: Any) -> Said:
    return {"rows": [poison.id for poison in asked.poisons]}


def _ended(do: str) -> Callable[..., Any]:
    def around(self: Any, call: Callable[[], Any], *_: Any) -> Any:
        return _record(do, call, {}, lambda _: {"spent": self.error is not None})

    return around


def _opened(self: ConnectedServers, call: Callable[[], Any], name: str) -> Any:
    lane = int(name.rsplit(".", 2)[1])
    _here.lane = lane
    sender = _open(self, call, name)
    sender._recorded = lane, getattr(_here, "token", None)
    return sender


_wrap(ConnectedServers, "__init__", _connect)
_wrap(ConnectedServers, "open_sender", _opened)
_wrap(TransformingTransactionalSender, "attempt", _look)
_wrap(TransformingTransactionalSender, "find", _find)
_wrap(TransformingTransactionalSender, "publish", _publish)
_wrap(
    ExactlyOnceLane,
    "_advance",
    _at_database("advance", _asks_to_advance, lambda settles: _advanced(settles.args[-1])),
)
_wrap(ExactlyOnceLane, "_park", _at_database("park", _asks_to_park, _nothing))
_wrap(AtLeastOnceLane, "_park", _at_database("park", _asks_to_park, _nothing))
_wrap(ExactlyOnceLane, "_say_farewell", _at_database("drained", _nothing, _nothing))
_wrap(TransactionalProducer, "begin", _ended("begin"))
_wrap(TransactionalProducer, "commit", _ended("commit"))
_wrap(TransactionalProducer, "abort", _ended("abort"))
