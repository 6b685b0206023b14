"""Measures what keeping delivered records costs: rate, WAL and disk with and without, in turn, in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import NamedTuple

from environment import Environment, environment, harvester

MODES = ("at-least-once", "exactly-once")
WARM_UP_ROWS = 20_000
KEEP = {"for": "24h"}


class Drained(NamedTuple):
    """What one backlog took: records a second, and bytes of WAL a record until the table is empty."""

    rate: float
    wal: float


def drain(on: Environment, topic: str, rows: int, arguments: argparse.Namespace) -> Drained:
    """Lets the harvester that runs deliver a backlog."""
    with on.connect() as connection:
        on.fill(topic, rows, arguments.keys, arguments.bytes)
        [before] = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
        rate = rows / on.seconds_until_empty()
        measured = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)", [before])
        [wal] = measured.fetchone() or (0,)
    return Drained(rate, float(wal) / rows)


def kept_bytes(on: Environment) -> float:
    """Returns the bytes on disk of a kept record, with its indexes."""
    size = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('outbox_kept')"
    with on.connect() as connection:
        [(total,), (count,)] = (
            connection.execute(sql).fetchone() or (0,) for sql in (size, "SELECT count(*) FROM outbox_kept")
        )
    return float(total) / max(1, int(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--rounds", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--engine", default="inline", choices=["spark", "inline"])
    arguments = parser.parse_args()
    found: dict[tuple[str, bool], list[Drained]] = {}
    with environment() as on:
        topic = on.topic()
        made = on.settings("init-kept", dialect={"driver": "postgres", "keep": KEEP})
        subprocess.run([sys.executable, "-m", "outbox_core", "init", "-f", str(made)], check=True)
        for round_ in range(arguments.rounds + 1):
            for mode in MODES:
                for keeps in (False, True):
                    dialect = {"driver": "postgres", **({"keep": KEEP} if keeps else {})}
                    name = f"bench-{mode}{'-kept' * keeps}"
                    settings = on.settings(name, engine=arguments.engine, delivery=mode, dialect=dialect)
                    with harvester(settings):
                        drain(on, topic, WARM_UP_ROWS, arguments)
                        drained = drain(on, topic, arguments.rows, arguments)
                    if round_:
                        found.setdefault((mode, keeps), []).append(drained)
                    print(
                        f"round {round_}: {name:28} {drained.rate:9,.0f}/s {drained.wal:7,.0f} B", flush=True
                    )
        print(f"bytes of a kept record on disk, indexes included: {kept_bytes(on):.0f}")
    for mode in MODES:
        without, kept = found[mode, False], found[mode, True]
        shares = [b.rate / a.rate for a, b in zip(without, kept, strict=True)]
        wal = [statistics.median(each.wal for each in some) for some in (without, kept)]
        listed = ", ".join(f"{share:.2f}" for share in shares)
        print(f"{mode}: rate kept beside not kept {listed}; WAL of a record {wal[0]:.0f} and {wal[1]:.0f} B")


if __name__ == "__main__":
    main()
