"""``outbox demo``: the options; the distribution ``outbox-demo`` has the implementation."""

from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Annotated

import typer
from outbox_sdk.errors import ConfigError

from outbox_core.cli.command import Command

GROUP = "outbox.commands"
"""The entry-point group of commands that other distributions provide."""

_INSTALL = "run in a clone of outbox: pip install ./servers ./plugins/postgres ./demo"


class EngineName(StrEnum):
    """The engines that can be shown."""

    SPARK = "spark"
    INLINE = "inline"


def demo(
    seconds: Annotated[float, typer.Option(min=5, help="How long the application writes.")] = 40,
    rate: Annotated[float, typer.Option(min=1, help="Records per second, approximately.")] = 300,
    keys: Annotated[int, typer.Option(min=1, help="How many different keys.")] = 200,
    engine: Annotated[EngineName, typer.Option(help="Where the harvesters' lanes run.")] = EngineName.SPARK,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running after the audit, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch a demonstration: records flow, the leader is killed, an audit compares.

    Starts a PostgreSQL, a Kafka broker, two harvesters and an application that writes orders, kills the
    leading harvester, and compares what was committed with what arrived. Needs the extra 'demo'
    of outbox-core; fetches Kafka's jars once. Exits with 1 if anything was lost, foreign or out of order.
    """
    run = _find()
    run(seconds=seconds, rate=rate, keys=keys, engine=engine.value, keep=keep)


def _find() -> Callable[..., None]:
    """Loads the demonstration, which depends on this package and on servers.

    Raises:
        ConfigError: It is not installed, or something that it needs is not.
    """
    installed = entry_points(group=GROUP, name="demo")
    if not installed:
        raise ConfigError(f"the demonstration, outbox-demo, is not installed; {_INSTALL}")
    try:
        run: Callable[..., None] = next(iter(installed)).load()
    except ModuleNotFoundError as error:
        raise ConfigError(f"the demonstration needs {error.name}, which is missing; {_INSTALL}") from error
    return run


COMMAND = Command(
    demo,
    (
        "outbox demo",
        "outbox demo --seconds 120 --rate 1000",
        "outbox demo --keep   # leave everything running after the audit",
    ),
)
