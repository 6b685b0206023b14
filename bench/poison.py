"""What one record that cannot be sent costs all others: a backlog with it and without it, in turn."""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from stage import Stage, stage

POISONED = "key-7"
PATIENCE = 300
"""Seconds to wait for an empty outbox."""
LARGEST = 10_000
"""Bytes of the largest message that the topic takes."""


def limit(on: Stage, topic: str, largest: int) -> None:
    """Sets the largest message that a topic takes, in bytes."""
    entry = ConfigEntry("max.message.bytes", str(largest), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": on.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def poison(on: Stage) -> None:
    """Makes one record in the middle of the backlog larger than the topic takes."""
    with on.connect() as connection:
        connection.execute(
            """UPDATE outbox SET kafka_value = %s WHERE id = (
                   SELECT id FROM outbox WHERE kafka_key = %s ORDER BY id OFFSET 10 LIMIT 1)""",
            (secrets.token_hex(LARGEST), POISONED),  # larger also when it is compressed
        )


def drain(on: Stage, *, poisoned: bool) -> float:
    """Returns seconds until every key but the poisoned one is empty.

    The backlog is written before, while nobody harvests, so that the record can be made large.
    """
    started = time.monotonic()
    with on.connect() as connection:
        while connection.execute(
            "SELECT FROM outbox WHERE NOT (%s AND kafka_key = %s) LIMIT 1", (poisoned, POISONED)
        ).fetchone():
            if time.monotonic() - started > PATIENCE:
                sys.exit(f"not drained within {PATIENCE} s")
            time.sleep(0.02)
    return time.monotonic() - started


def free(settings: Path, verb: str) -> None:
    """Has an operator decide."""
    command = [sys.executable, "-m", "outbox_core", "parked", verb, POISONED, "-f", str(settings), "--json"]
    command += ["--yes"] if verb == "skip" else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    letters = json.loads(done.stdout)["letters"]
    print(f"  {verb}: {len(letters)} letter", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    arguments = parser.parse_args()
    ratios = []
    with stage() as on:
        settings = on.settings("bench", engine=arguments.engine)
        for pair in range(arguments.pairs + 1):
            seconds = {}
            for poisoned in (False, True):
                topic = on.topic()
                limit(on, topic, LARGEST)
                on.fill(topic, arguments.rows, arguments.keys)
                if poisoned:
                    poison(on)
                with on.harvester(settings):
                    seconds[poisoned] = drain(on, poisoned=poisoned)
                    if poisoned:
                        free(settings, "skip")
                        on.seconds_until_empty()
            ratio = seconds[False] / seconds[True]
            print(f"{'warm-up' if pair == 0 else f'pair {pair}'}: ratio of rates {ratio:.2f}")
            ratios += [ratio] if pair else []
    print(
        f"{arguments.rows:,} rows, {arguments.keys:,} keys, engine {arguments.engine}: "
        f"with one poison record the others flow at {statistics.median(ratios):.2f} of the rate without"
    )


if __name__ == "__main__":
    main()
