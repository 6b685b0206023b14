"""Which cells there are: from a base point along each axis, and the pairs of axes that matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from bench.tuning.cell import EXACT, LOOSE, Cell

MIB = 1 << 20
BOTH = (LOOSE, EXACT)
FAR = (20, 100)
"""Milliseconds of a round trip over which waiting decides, not CPU."""

ROWS = {LOOSE: 20_000, EXACT: 60_000}
"""Of a backlog: batches have up to 10,000."""


class Line(NamedTuple):
    """A line of a table: a cell beside the one that it is compared with."""

    table: str
    label: str
    cell: Cell
    base: Cell


def lines() -> Iterator[Line]:
    """Returns all lines that a busy machine can measure."""
    for delivery in BOTH:
        base = Cell(delivery, rows=ROWS[delivery])
        yield from _links(base)
        yield from _lanes(base)
        yield from _records(base)
    yield from _in_flight(Cell(LOOSE, rows=IN_FLIGHT_ROWS))
    yield from _runs(Cell(LOOSE))
    for ms in FAR:
        base = Cell(EXACT, rows=ROWS[EXACT]).over(ms)
        for batch in (1000, 3000, 50_000):
            yield _changed("maxBatchRecords", base, {"maxBatchRecords": batch})
    for linger in (0, 5, 100):
        yield _changed("linger.ms", Cell(LOOSE), {"linger.ms": linger})
    yield from _idle()


def near() -> Iterator[Line]:
    """Returns the lines without any delay, which need a quiet machine."""
    for delivery in BOTH:
        base = Cell(delivery, rows=60_000).over(0)
        yield Line("no delay", "defaults", base, base)
        for lanes in (2, 4):
            yield Line("no delay", f"sendConcurrency: {lanes}", replace(base, lanes=lanes), base)
        for size, rows in {100: 60_000, 10_000: 10_000, 100_000: 1500}.items():
            yield Line("no delay", f"values of {size:,} B", replace(base, size=size, rows=rows), base)
        for keys in (1, 100, 0):
            yield Line("no delay", _keys(keys), replace(base, keys=keys), base)
    base = Cell(LOOSE, rows=60_000).over(0)
    for settings in IN_FLIGHT:
        yield _changed("no delay", base, settings)
    base = Cell(EXACT, rows=60_000).over(0)
    for batch in (1000, 3000, 50_000):
        yield _changed("no delay", base, {"maxBatchRecords": batch})


IN_FLIGHT: tuple[Mapping[str, int | str], ...] = (
    {"maxInFlightRecords": 500},
    {"maxInFlightRecords": 2000},
    {"maxInFlightRecords": 32_000},
)


IN_FLIGHT_ROWS = 120_000
"""Several times what may be in flight at most, or a drain is over at once."""


def _links(base: Cell) -> Iterator[Line]:
    near = base.over(1)
    for database, broker in ((1, 1), (20, 20), (20, 1), (1, 20), (100, 100), (100, 1), (1, 100)):
        cell = replace(base, database=database, broker=broker)
        yield Line("links", f"database {database} ms, broker {broker} ms", cell, near)


def _lanes(base: Cell) -> Iterator[Line]:
    for ms, numbers in {1: (4,), 20: (2, 4, 8), 100: (4, 8)}.items():
        for lanes in numbers:
            cell = replace(base.over(ms), lanes=lanes)
            yield Line("lanes", f"{ms} ms, sendConcurrency: {lanes}", cell, base.over(ms))


def _records(base: Cell) -> Iterator[Line]:
    for size, rows in {100: 20_000, 10_000: 6000, 100_000: 1200}.items():
        yield Line("records", f"values of {size:,} B", replace(base, size=size, rows=rows), base)
    for keys in (1, 100, 0):
        yield Line("records", _keys(keys), replace(base, keys=keys), base)
    large = replace(base, size=100_000, rows=1200)
    for mib in (8, 256):
        yield _changed("values of 100,000 B", large, {"maxLaneBytes": mib * MIB})


def _in_flight(base: Cell) -> Iterator[Line]:
    for ms in FAR:
        for settings in IN_FLIGHT:
            yield _changed("in flight", base.over(ms), settings)
    for ms in FAR:
        lanes = replace(base.over(ms), lanes=4, settings=(("maxInFlightRecords", 32_000),))
        yield Line(
            "in flight", f"{ms} ms, sendConcurrency: 4, maxInFlightRecords: 32000", lanes, base.over(ms)
        )


def _runs(base: Cell) -> Iterator[Line]:
    for run, rows in {1: 150, 100: 5000, 10_000: 20_000}.items():
        one = replace(base, keys=1, rows=rows)
        line = _changed("one key", one, {"maxRunRecords": run})
        yield line._replace(base=replace(base, keys=1))


def _idle() -> Iterator[Line]:
    for delivery in BOTH:
        base = replace(Cell(delivery, idle=True).over(1), rows=0)
        for settings in (
            {"maxMarkBackoff": "20ms"},
            {"maxMarkBackoff": "1s"},
            {"minPollInterval": "1s"},
        ):
            yield _changed("idle", base, settings)


def _changed(table: str, base: Cell, settings: Mapping[str, int | str]) -> Line:
    words = ", ".join(f"{name}: {value}" for name, value in settings.items())
    far = f"{base.database} ms, " if table != "no delay" else ""
    lanes = f"{base.lanes} lanes, " if base.lanes > 1 else ""
    return Line(table, f"{far}{lanes}{words}", base.having(settings), base)


def _keys(keys: int) -> str:
    return {0: "keys by Zipf", 1: "1 key"}.get(keys, f"{keys} keys")
