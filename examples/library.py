"""Runs the harvester in a program of your own, which knows from its events whether it leads.

    python examples/library.py "host=localhost dbname=postgres user=postgres" localhost:9092

The usual way is `outbox run` in a process of its own; embed the harvester if you need its events.
"""

import sys
from threading import Event as Flag

from outbox_core.config import configure
from outbox_core.events import Event, LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, MeterRead
from outbox_core.harvest import Harvest

leading = Flag()
"""Set while this process leads, for work that only one process may do."""


def on_event(event: Event) -> None:
    """Handles one event at a time; it may block on LeaderRevoked only."""
    match event:
        case LeaderAcquired(leader_id, token):
            print(f"leading as {leader_id}, fence token {token}", flush=True)
            leading.set()
        case LeaderRefreshed(leader_id, lane):
            print(f"lane {lane} marks anew, as {leader_id}", flush=True)
        case LeaderRevoked():
            # No other process is elected before this returns: finish the leader's work here.
            leading.clear()
            print("handed over", flush=True)
        case LeaderFenced(reason):
            # Another process may lead already: abort the leader's work at once.
            leading.clear()
            print(f"leadership lost: {reason}", flush=True)
        case MeterRead(stats):
            print(f"{stats.purged_per_second:,.0f} records/s", flush=True)


def main() -> None:
    data_source, brokers = sys.argv[1:3]
    # The keys of the YAML file; outbox_core.config.load() reads one instead.
    settings = configure(
        {
            "harvest": {
                "dataSource": data_source,
                "baseKafkaConfig": {"bootstrap.servers": brokers},
                "engine": "inline",
                "limits": {"sendConcurrency": 2, "minMetricsInterval": "1s"},
            }
        }
    )
    settings.harvest.dialect.create().create()  # as `outbox init` does; leaves existing tables alone
    harvest = Harvest(settings.harvest)
    harvest.set_event_handler(on_event)
    harvest.start()
    try:
        harvest.wait()  # raises the error that ends the harvest, unless stop() ended it
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        harvest.stop()


if __name__ == "__main__":
    main()
