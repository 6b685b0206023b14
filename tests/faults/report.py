"""Adds results to the tables of a Markdown file, and stores the counts in a JSON file beside it."""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from filelock import FileLock
from outbox_servers.services import find_java
from outbox_servers.services.kafka_home import kafka_home

from .fault import AT_LEAST_ONCE, DELIVERIES, ENGINES, EXACTLY_ONCE
from .hosts import HOSTS
from .judge import Round
from .replica_report import enter, findings, replicas
from .rounds import FAULTS
from .site import Site
from .table import head

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
KINDS_BEGIN, KINDS_END = "<!-- kinds: begin -->", "<!-- kinds: end -->"
DATABASES_BEGIN, DATABASES_END = "<!-- databases: begin -->", "<!-- databases: end -->"
OUTAGES_BEGIN, OUTAGES_END = "<!-- outages: begin -->", "<!-- outages: end -->"
COUNTS: Mapping[str, Sequence[str]] = {
    AT_LEAST_ONCE: ("records", "lost", "overtaken", "foreign", "reappeared", "repeated"),
    EXACTLY_ONCE: (
        *("records", "lost", "overtaken", "foreign", "repeated"),
        *("recoveries", "recovered", "aborted", "hidden"),
    ),
}
"""The counts that are summed up over rounds."""
_ERRORS = {"lost": "lost", "overtaken": "out of order", "foreign": "foreign"}
"""Counts that must be 0, and their headings."""
REPLICAS_BEGIN, REPLICAS_END = "<!-- replicas: begin -->", "<!-- replicas: end -->"
_TIMES = ("median stall", "longest stall", "its lower bound", "engine")
_OUTAGE_COLUMNS = (
    *("engine", "away", "CPU before, in as long", "CPU meanwhile", "memory before", "at most"),
    *("back to an empty outbox", "lost", "out of order"),
)


class Report:
    """A Markdown file whose parts between two comments are generated; several processes may share it.

    Args:
        path: The file, with these comments.
        fresh: Whether to delete earlier counts.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path.resolve()
        self._data = self._path.with_suffix(".json")
        name = hashlib.sha256(str(self._path).encode()).hexdigest()[:16]
        self._lock = FileLock(Path(tempfile.gettempdir()) / f"outbox-faults-{name}.lock")
        if fresh:
            with self._lock:
                self._data.unlink(missing_ok=True)

    def add(self, seed: int, rounds: Sequence[Round], site: Site) -> None:
        """Adds a batch of rounds."""
        counts = COUNTS[site.delivery]
        with self._lock:
            data = self._load()
            data["versions"] |= versions(site)
            data["date"] = time.strftime("%Y-%m-%d")
            where = [site.database, site.delivery, site.engine]
            if [*where, seed] not in data["seeds"]:
                data["seeds"].append([*where, seed])
            kinds = data["kinds"]
            for part in where:
                kinds = kinds.setdefault(part, {})
            for each in rounds:
                kind = kinds.setdefault(
                    each.fault.name,
                    {"rounds": 0, "wrong": 0, "stalls": [], "takeovers": [], **dict.fromkeys(counts, 0)},
                )
                kind["rounds"] += 1
                kind["wrong"] += bool(each.wrong)
                for name in counts:
                    kind[name] += getattr(each, name)
                enter(kind, each)
                if each.stall is not None and each.strike is not None:
                    kind["stalls"].append([round(each.stall, 2), round(each.strike.floor, 2)])
                if each.takeover is not None:
                    kind.setdefault("takeovers", []).append(round(each.takeover, 2))
            data["findings"] += findings(seed, rounds, site)
            self._save(data)

    def add_outage(self, outage: Mapping[str, Any]) -> None:
        """Adds the measurements of a long outage; replaces earlier ones of the same kind."""
        with self._lock:
            data = self._load()
            same = ("engine", "away")
            others = [old for old in data["outages"] if any(old[name] != outage[name] for name in same)]
            data["outages"] = sorted([*others, dict(outage)], key=lambda old: [old[name] for name in same])
            self._save(data)

    def _load(self) -> dict[str, Any]:
        lists: dict[str, Any] = {"seeds": [], "outages": [], "findings": []}
        empty = {"kinds": {}, "versions": {}, "date": "", **lists}
        with suppress(FileNotFoundError):
            empty.update(json.loads(self._data.read_text()))
        return empty

    def _save(self, data: Mapping[str, Any]) -> None:
        self._data.write_text(_as_json(data) + "\n")
        text = _between(self._path.read_text(), KINDS_BEGIN, KINDS_END, _kinds())
        text = _between(text, DATABASES_BEGIN, DATABASES_END, _databases(data))
        parts = replicas(_found(data), data["findings"])
        text = _between(text, REPLICAS_BEGIN, REPLICAS_END, parts)
        text = _between(text, BEGIN, END, _faults(data))
        self._path.write_text(_between(text, OUTAGES_BEGIN, OUTAGES_END, _outages(data)))


def versions(site: Site) -> dict[str, str]:
    """Returns the versions of what was run."""
    found = {
        site.host.title: site.host.version(),
        "Kafka": kafka_home(find_java()).name.removeprefix("kafka-"),
        "Python": platform.python_version(),
    }
    for name in ("pyspark", "confluent-kafka", "psycopg", "PyMySQL"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _as_json(data: object, depth: int = 5, indent: str = "") -> str:
    """Returns JSON with a line for each kind of fault, each seed and each outage.

    Args:
        data: The data, or a part of it.
        depth: How many more levels are split into lines.
        indent: The indentation of the closing bracket.
    """
    inner = indent + " "
    if isinstance(data, Mapping) and depth and _is_nested(data):
        brackets = "{}"
        parts = [f"{json.dumps(name)}: {_as_json(value, depth - 1, inner)}" for name, value in data.items()]
    elif isinstance(data, list) and depth and data:
        brackets = "[]"
        parts = [json.dumps(value) for value in data]
    else:
        return json.dumps(data)
    lines = f",\n{inner}".join(parts)
    return f"{brackets[0]}\n{inner}{lines}\n{indent}{brackets[1]}"


def _is_nested(data: Mapping[str, object]) -> bool:
    return any(isinstance(value, Mapping | list) for value in data.values())


def _between(text: str, begin: str, end: str, new: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{new}{end}{after}"


def _kinds() -> str:
    def only(some: Collection[str], everywhere: Collection[str]) -> list[str]:
        missing = [each for each in everywhere if each not in some]
        if len(missing) == 1 < len(some):
            return [f"not {missing[0]}"]
        return [f"{' and '.join(some)} only"] if missing else []

    rows = []
    titles = [host.title for host in HOSTS.values()]
    for fault in FAULTS:
        where = [*only(fault.engines, ENGINES), *only(fault.deliveries, DELIVERIES)]
        where += only([host.title for host in HOSTS.values() if fault.needs <= host.powers], titles)
        said = f" ({'; '.join(where)})" if where else ""
        rows.append(f"| `{fault.name}` | {fault.title}{said} |\n")
    return head(("fault", "what it does"), 2) + "".join(rows)


def _found(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yields each database, delivery and engine, with the results of its kinds."""
    for database, host in HOSTS.items():
        for delivery in COUNTS:
            for engine, kinds in sorted(data["kinds"].get(database, {}).get(delivery, {}).items()):
                yield host.title, delivery, engine, kinds


def _databases(data: Mapping[str, Any]) -> str:
    places: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for title, delivery, _, kinds in _found(data):
        places.setdefault((title, delivery), []).extend(kinds.values())
    rows = []
    for (title, delivery), every in places.items():
        counts = ("rounds", "records", *_ERRORS, "repeated", "wrong")
        cells = [title, f"`{delivery}`", *(_sum(every, name) for name in counts)]
        rows.append(f"| {' | '.join(cells)} |\n")
    return head(
        ("database", "delivery", "rounds", "records", *_ERRORS.values(), "repeats", "went wrong"), 2
    ) + "".join(rows)


def _faults(data: Mapping[str, Any]) -> str:
    known = ", ".join(f"{name} {number}" for name, number in data["versions"].items() if number)
    columns = ("fault", "rounds", *_ERRORS.values(), "repeats", "duplicates", *_TIMES, "went wrong")
    rows = [f"Last run {data['date']} with {known}.\n\n", head(columns, 1)]
    found = list(_found(data))
    for fault in FAULTS:
        places = [(*place, kinds[fault.name]) for *place, kinds in found if fault.name in kinds]
        if places:
            every = [kind for *_, kind in places]
            cells = [f"`{fault.name}`", *(_sum(every, name) for name in ("rounds", *_ERRORS))]
            cells += [
                _sum((kind for _, of, _, kind in places if of == each), "repeated") for each in DELIVERIES
            ]
            rows.append(f"| {' | '.join([*cells, *_stalls(places), _sum(every, 'wrong')])} |\n")
    return "".join(rows)


def _stalls(places: Iterable[tuple[str, str, str, Mapping[str, Any]]]) -> list[str]:
    found = [(*stall, f"`{engine}`") for _, _, engine, kind in places for stall in kind["stalls"]]
    if not found:
        return ["-"] * len(_TIMES)
    longest, floor, engine = max(found)
    middle = median(stall for stall, *_ in found)
    return [*(f"{seconds:.1f} s" for seconds in (middle, longest, floor)), engine]


def _sum(kinds: Iterable[Mapping[str, Any]], name: str) -> str:
    return f"{sum(kind[name] for kind in kinds):,}"


def _outages(data: Mapping[str, Any]) -> str:
    rows = []
    for each in data["outages"]:
        cells = [f"`{each['engine']}`", each["away"]]
        cells += [f"{each[name]:.1f} s" for name in ("cpu_before", "cpu")]
        cells += [f"{each[name]:.0f} MB" for name in ("memory_before", "memory_most")]
        cells += [f"{each['back']:.1f} s", str(each["lost"]), str(each["out_of_order"])]
        rows.append(f"| {' | '.join(cells)} |\n")
    return head(_OUTAGE_COLUMNS, 2) + "".join(rows)
