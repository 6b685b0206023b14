"""What goes wrong where Spark reads the outbox, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .scheduler import Host

if TYPE_CHECKING:
    from .spark_world import SparkWorld

MOST_QUERIES = 3
"""So many run at once at most."""


def crash_at_a_step(world: SparkWorld) -> None:
    """Kills a driver or a task before one of their next steps; another is started soon."""
    world.strike, world.steps_to_strike = Host.kill, world.chance.randint(1, 12)


def pause_at_a_step(world: SparkWorld) -> None:
    """Freezes one; a cluster may take it for lost, and start another."""
    world.strike, world.steps_to_strike = world.freeze, world.chance.randint(1, 12)


def add_query(world: SparkWorld) -> None:
    """Starts a query with a checkpoint of its own, which runs for a while."""
    if len(world.queries) < MOST_QUERIES:
        world.add_query(world.chance.random() * 4)


def copy_checkpoint(world: SparkWorld) -> None:
    """Has the first query be started with an older copy of its checkpoint, once no driver of it is left.

    Where somebody keeps rows from being deleted, or has had a note forgotten, nothing tells that it is older.
    """
    query = world.queries[0]
    if (
        query.driver is not None
        and not world.refused
        and not world.faults["forgetting"]
        and not world.scenario.kept
    ):
        for host in [query.driver.host, *world.frozen]:
            if host.name.startswith(query.name):
                host.kill()
        query.copy_older()


def add_harvester(world: SparkWorld) -> None:
    """Starts a harvester, which runs for a while, unless ids are given out anew."""
    if not world.processes and not world.scenario.ids_anew:
        world.add_harvester()


SPARK_FAULTS: dict[str, Callable[[Any], None]] = {
    "query crashes": crash_at_a_step,
    "query pauses": pause_at_a_step,
    "second queries": add_query,
    "older checkpoints": copy_checkpoint,
    "harvesters": add_harvester,
}
"""Name in the report → what it does."""
