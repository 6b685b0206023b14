"""Measures what ``harvest.coalesce`` saves of a backlog: seconds and records, with and without, in turn."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

from backlog import insert, tidy
from environment import Environment, environment, harvester

MODES = ("at-least-once", "exactly-once")
KEYS = {
    "uniform": "'key-' || mod(g::bigint * 7919, {keys})",
    "zipf": "'key-' || floor({keys} ^ random())",
}
"""Of a distribution, the expression of a key; by Zipf's law the n-th key has a share like that of 1/n."""
SENT = "SELECT sum((metrics::json->>'sent')::bigint) FROM outbox_fence WHERE holder IS NOT NULL"
HEARTBEATS = 2.5
"""Seconds in which each lane writes its counters."""


class Drained(NamedTuple):
    """What a backlog took: seconds, and records that were sent."""

    seconds: float
    sent: int


def drain(
    on: Environment, topic: str, mode: str, arguments: argparse.Namespace, coalesce: list[str]
) -> Drained:
    """Starts a harvester at a backlog, and waits until the outbox is empty."""
    with on.connect() as connection:
        tidy(connection)
        key = KEYS[arguments.distribution].format(keys=arguments.keys)
        insert(connection, topic, arguments.rows, key, f"lpad(g::text, {arguments.bytes}, '.')")
        settings = on.settings(
            f"bench-{mode}{'-coalesced' * bool(coalesce)}",
            engine="inline",
            delivery=mode,
            coalesce=coalesce,
            limits={"minMetricsInterval": "1s"},
        )
        with harvester(settings):
            seconds = on.seconds_until_empty()
            time.sleep(HEARTBEATS)
            [sent] = connection.execute(SENT).fetchone() or (0,)
    return Drained(seconds, int(sent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--distribution", choices=list(KEYS), default="uniform")
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--rounds", type=int, default=3, help="how many times each is measured")
    arguments = parser.parse_args()
    found: dict[tuple[str, bool], list[Drained]] = {}
    with environment() as on:
        topic = on.topic()
        for round_ in range(1, arguments.rounds + 1):
            for mode in MODES:
                for coalesced in (False, True):
                    drained = drain(on, topic, mode, arguments, [topic] if coalesced else [])
                    found.setdefault((mode, coalesced), []).append(drained)
                    print(
                        f"round {round_}: {mode:14} {'coalesced' if coalesced else 'all':9} "
                        f"{drained.seconds:6.1f} s {drained.sent:10,} sent",
                        flush=True,
                    )
    for mode in MODES:
        every, some = found[mode, False], found[mode, True]
        seconds = [statistics.median(each.seconds for each in drains) for drains in (every, some)]
        shares = [b.sent / a.sent for a, b in zip(every, some, strict=True)]
        listed = ", ".join(f"{share:.2f}" for share in shares)
        print(f"{mode}: {seconds[0]:.1f} s for all, {seconds[1]:.1f} s coalesced; sent of all {listed}")


if __name__ == "__main__":
    main()
