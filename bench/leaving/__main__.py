"""Reads the command line, and plays the rounds."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from outbox_servers.services.postgres_binaries import find_binaries

from bench import leaving
from bench.compare.databases import Postgres
from bench.compare.servers import open_servers, say
from bench.leaving import debezium, goharvest

PEERS = {"goharvest": goharvest, "debezium": debezium}
SETTINGS = {"track_commit_timestamp": "on", "scram_iterations": "4096", "fsync": "off"}
"""What events with random ids need, and passwords for goharvest's driver; nobody kills the server here."""
DELIVERIES = ("at-least-once", "exactly-once")


def main() -> None:
    """Plays rounds; ends with 1, and keeps all logs, if one shows more than the page says."""
    parser = argparse.ArgumentParser(prog="python -m bench.leaving", description=leaving.__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--rounds", type=int, default=1, help="of each delivery (1)")
    parser.add_argument("--delivery", nargs="+", choices=DELIVERIES, default=DELIVERIES, help="default: both")
    parser.add_argument("--no-pause", action="store_true", help="writers go on while harvesters change")
    parser.add_argument("--seconds", type=float, default=5, help="between two changes (5)")
    asked = parser.parse_args()
    peer, pause = PEERS[asked.peer], not asked.no_pause
    logs = Path(tempfile.mkdtemp(prefix="outbox-leaving-"))
    good = True
    database = Postgres(find_binaries(), SETTINGS)
    with open_servers(database, peer.KAFKA) as servers:
        for number in range(1, asked.rounds + 1):
            for delivery in asked.delivery:
                folder = logs / f"{delivery.replace('-', '_')}_{number}"
                folder.mkdir()
                began = time.monotonic()
                verdict = peer.play(servers, folder, delivery, pause=pause, seconds=asked.seconds)
                how = "with a pause" if pause else "without a pause"
                took = time.monotonic() - began
                print(
                    f"{asked.peer}, {delivery}, {how}, round {number} ({took:.0f} s): {verdict}", flush=True
                )
                good = good and verdict.good and not (pause and verdict.at_a_change)
    say(f"logs: {logs}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
