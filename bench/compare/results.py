"""The dated file of a run: every single measurement, with the machine and all versions."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Measurement:
    """One candidate in one case of one table, once.

    Attributes:
        table: The table's name.
        case: What was done, for example ``1,000 keys, 100 B``.
        candidate: The candidate's name.
        round: The number of the round, from 1 on.
        values: Name of a figure → the figure; empty after a failure.
        failure: Why there are no figures.
    """

    table: str
    case: str
    candidate: str
    round: int
    values: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """All rounds of one figure: its median and its extremes."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, numbers: list[float]) -> Self:
        """Summarises at least one number."""
        return cls(statistics.median(numbers), min(numbers), max(numbers), len(numbers))


@dataclass(slots=True)
class Results:
    """The content of one or more files.

    Attributes:
        conditions: The machine, the versions, the command; date → those of that run.
        measurements: In the order in which they were taken.
    """

    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Reads files; later files come later."""
        results = cls()
        for path in paths:
            content = json.loads(path.read_text())
            results.conditions |= content["conditions"]
            results.measurements += [Measurement(**each) for each in content["measurements"]]
        return results

    def write(self, path: Path) -> None:
        """Writes everything; a file that is there is replaced as a whole."""
        content = {
            "conditions": self.conditions,
            "measurements": [asdict(each) for each in self.measurements],
        }
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        unfinished.replace(path)

    def of(self, table: str) -> list[Measurement]:
        """Returns the measurements of one table."""
        return [each for each in self.measurements if each.table == table]


def summaries(measurements: list[Measurement], figure: str) -> dict[tuple[str, str], Summary]:
    """Returns (case, candidate) → the summary of one figure, in the order of the first measurements."""
    found: dict[tuple[str, str], list[float]] = {}
    for each in measurements:
        if figure in each.values:
            found.setdefault((each.case, each.candidate), []).append(each.values[figure])
    return {key: Summary.of(numbers) for key, numbers in found.items()}


def now() -> dt.datetime:
    """Returns this second, with the machine's time zone."""
    return dt.datetime.now().astimezone().replace(microsecond=0)


def machine() -> dict[str, Any]:
    """Returns what is known of this machine; no name of a person, a host or a path."""
    cpu = memory = ""
    if Path("/proc/cpuinfo").exists():
        cpu = _after("model name", Path("/proc/cpuinfo").read_text())
        memory = _after("MemTotal", Path("/proc/meminfo").read_text())
    return {
        "system": platform.platform(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory": memory,
        "load before": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "java": _java(),
        **{name: metadata.version(name) for name in ("pyspark", "confluent-kafka", "psycopg", "pymysql")},
    }


def _after(name: str, text: str) -> str:
    lines = (line.partition(":") for line in text.splitlines() if line.startswith(name))
    return next((value.strip() for _, _, value in lines), "")


def _java() -> str:
    try:
        done = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stderr.partition("\n")[0]
