"""Adds results to the tables of a Markdown file; beside it are the counts as JSON, each fault as CSV."""

from __future__ import annotations

import csv
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

from .fault import AT_LEAST_ONCE, DELIVERIES, ENGINES, EXACTLY_ONCE, Fault
from .hosts import HOSTS
from .judge import Round
from .replica_report import enter, findings, replicas
from .rounds import FAULTS
from .site import Site
from .table import head

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
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
_ERRORS = ("lost", "overtaken", "foreign")
"""Counts that must be 0."""
REPLICAS_BEGIN, REPLICAS_END = "<!-- replicas: begin -->", "<!-- replicas: end -->"
_TIMES = ("stall, median s", "longest s", "lower bound s")
_OUTAGE_COLUMNS = (
    *("engine", "away", "CPU s: before; meanwhile", "memory MB: before; at most"),
    *("back to an empty outbox s", "lost or out of order"),
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
        text = _between(self._path.read_text(), DATABASES_BEGIN, DATABASES_END, _databases(data))
        parts = replicas(_found(data), data["findings"])
        text = _between(text, REPLICAS_BEGIN, REPLICAS_END, parts)
        text = _between(text, BEGIN, END, _groups(data))
        with self._path.with_suffix(".csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(_faults(data))
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


def does(fault: Fault) -> str:
    """Returns what a fault does, and where it applies."""

    def only(some: Collection[str], everywhere: Collection[str]) -> list[str]:
        few = len(some) == 1 or len(everywhere) - len(some) > 1
        return [f"{' and '.join(some)} only"] if few and len(some) < len(everywhere) else []

    titles = [host.title for host in HOSTS.values()]
    where = [*only(fault.engines, ENGINES), *only(fault.deliveries, DELIVERIES)]
    where += only([host.title for host in HOSTS.values() if fault.needs <= host.powers], titles)
    return f"{fault.title} ({'; '.join(where)})" if where else fault.title


def _found(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yields each database, delivery and engine, with the results of its kinds."""
    for database, host in HOSTS.items():
        for delivery in COUNTS:
            for engine, kinds in sorted(data["kinds"].get(database, {}).get(delivery, {}).items()):
                yield host.title, delivery, engine, kinds


def _databases(data: Mapping[str, Any]) -> str:
    places: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for title, delivery, _, kinds in _found(data):
        places.setdefault(title, {}).setdefault(delivery, []).extend(kinds.values())
    rows = []
    for title, deliveries in places.items():
        sums = [
            "; ".join(_sum(every, *names) for every in deliveries.values())
            for names in (("rounds",), ("records",), _ERRORS, ("repeated",), ("wrong",))
        ]
        rows.append(f"| {' | '.join([title, *sums])} |\n")
    columns = ("rounds", "records", "lost, out of order or foreign", "repeats", "went wrong")
    return head(("; ".join(COUNTS), *columns), 1) + "".join(rows)


def _ran(data: Mapping[str, Any]) -> Iterator[tuple[Fault, list[Mapping[str, Any]]]]:
    """Yields each fault that has rounds, with its results at each place."""
    found = list(_found(data))
    for fault in FAULTS:
        if every := [kinds[fault.name] for *_, kinds in found if fault.name in kinds]:
            yield fault, every


def _groups(data: Mapping[str, Any]) -> str:
    """Returns the versions, and a table with a line for all faults of a module."""
    known = ", ".join(f"{name} {number}" for name, number in data["versions"].items() if number)
    groups: dict[str, list[tuple[Fault, list[Mapping[str, Any]]]]] = {}
    for fault, every in _ran(data):
        module = type(fault).__module__.rpartition(".")[2]
        groups.setdefault(module.removesuffix("_faults"), []).append((fault, every))
    columns = ("kind", "faults", "rounds", "repeats", "stall s: median; longest (lower bound)", "went wrong")
    rows = [f"Last run {data['date']} with {known}.\n\n", head(columns, 2)]
    for of, faults in groups.items():
        names = ", ".join(f"`{fault.name}`" for fault, _ in faults)
        kinds = [kind for _, every in faults for kind in every]
        middle, longest, floor = _stalls(kinds)
        cells = [of, names, _sum(kinds, "rounds"), _sum(kinds, "repeated"), f"{middle}; {longest} ({floor})"]
        rows.append(f"| {' | '.join([*cells, _sum(kinds, 'wrong')])} |\n")
    return "".join(rows)


def _faults(data: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yields a head, and a row for each fault."""
    yield ("fault", "what it does", "rounds", "repeats", *_TIMES, "went wrong")
    for fault, every in _ran(data):
        sums = [_sum(every, name) for name in ("rounds", "repeated")]
        yield (fault.name, does(fault), *sums, *_stalls(every), _sum(every, "wrong"))


def _stalls(kinds: Iterable[Mapping[str, Any]]) -> list[str]:
    found = [stall for kind in kinds for stall in kind["stalls"]]
    if not found:
        return ["-"] * len(_TIMES)
    longest, floor = max(found)
    middle = median(stall for stall, _ in found)
    return [f"{seconds:.1f}" for seconds in (middle, longest, floor)]


def _sum(kinds: Iterable[Mapping[str, Any]], *names: str) -> str:
    return f"{sum(kind[name] for kind in kinds for name in names):,}"


def _outages(data: Mapping[str, Any]) -> str:
    rows = []
    for each in data["outages"]:
        cells = [f"`{each['engine']}`", each["away"]]
        cells += [f"{each['cpu_before']:.1f}; {each['cpu']:.1f}"]
        cells += [f"{each['memory_before']:.0f}; {each['memory_most']:.0f}"]
        cells += [f"{each['back']:.1f}", str(each["lost"] + each["out_of_order"])]
        rows.append(f"| {' | '.join(cells)} |\n")
    return head(_OUTAGE_COLUMNS, 2) + "".join(rows)
