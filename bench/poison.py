"""Measures what a record that cannot be sent costs all others: a backlog with and without it, in turn."""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import time
from pathlib import Path

from backlog import PADDED, insert, tidy
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from environment import Environment, environment, harvester

POISONED = "key-7"
PATIENCE = 300
"""Seconds to wait for an empty outbox."""
LARGEST = 10_000
"""Bytes of the largest message that the topic takes."""


def limit(on: Environment, topic: str, largest: int) -> None:
    """Sets the largest message that a topic takes, in bytes."""
    entry = ConfigEntry("max.message.bytes", str(largest), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": on.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def fill(on: Environment, topic: str, rows: int, keys: int, *, poisoned: bool) -> None:
    """Writes a backlog at once; optionally, a record in its middle is larger than the topic permits."""
    middle = keys * (rows // keys // 2) + int(POISONED.removeprefix("key-"))
    large = secrets.token_hex(LARGEST)  # too large even when it is compressed
    value = f"CASE WHEN g = {middle} THEN '{large}' ELSE {PADDED} END" if poisoned else PADDED
    with on.connect() as connection:
        tidy(connection)
        insert(connection, topic, rows, f"'key-' || mod(g, {keys})", value)


def drain(on: Environment, *, poisoned: bool) -> float:
    """Returns the seconds until all records of other keys are purged."""
    started = time.monotonic()
    with on.connect() as connection:
        others = "SELECT id FROM outbox WHERE NOT (%s AND kafka_key = %s) LIMIT 1"
        while connection.execute(others, (poisoned, POISONED)).fetchone() is not None:
            if time.monotonic() - started > PATIENCE:
                sys.exit(f"not drained within {PATIENCE} s")
            time.sleep(0.02)
    return time.monotonic() - started


def free(settings: Path, verb: str) -> None:
    """Has an operator decide."""
    command = [sys.executable, "-m", "outbox_core", "parked", verb, POISONED, "-f", str(settings), "--json"]
    command += ["--yes"] if verb == "skip" else []
    give_up = time.monotonic() + PATIENCE
    # The last attempts to send the record may come after all other records are purged.
    while (done := subprocess.run(command, check=False, capture_output=True, text=True)).returncode:
        if time.monotonic() > give_up:
            sys.exit(f"{POISONED} is not parked: {done.stderr}")
    letters = json.loads(done.stdout)["letters"]
    print(f"  {verb}: {len(letters)} letter", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=8, help="how many times each is measured")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    arguments = parser.parse_args()
    ratios = []
    with environment() as on:
        settings = on.settings("bench", engine=arguments.engine)
        topic = on.topic()
        limit(on, topic, LARGEST)
        with harvester(settings):
            for pair in range(arguments.pairs + 1):
                seconds = {}
                for poisoned in (False, True) if pair % 2 else (True, False):
                    fill(on, topic, arguments.rows, arguments.keys, poisoned=poisoned)
                    seconds[poisoned] = drain(on, poisoned=poisoned)
                    if poisoned:
                        free(settings, "skip")
                        on.seconds_until_empty()
                ratio = seconds[False] / seconds[True]
                rates = [f"{arguments.rows / seconds[poisoned]:,.0f}/s" for poisoned in (True, False)]
                kind = f"pair {pair}" if pair else "warm-up"
                print(f"{kind}: with poison {rates[0]}, without {rates[1]}, ratio {ratio:.2f}")
                ratios += [ratio] if pair else []
    print(
        f"{arguments.rows:,} rows, {arguments.keys:,} keys, engine {arguments.engine}: "
        f"with one poison record the others flow at {statistics.median(ratios):.2f} of the rate without"
    )


if __name__ == "__main__":
    main()
