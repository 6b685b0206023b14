"""What ``outbox demo`` runs: a demonstration, its display and its exit code."""

import signal
import sys
from threading import Event
from types import FrameType
from typing import Annotated

import typer
from outbox_core.cli.command import Command, ExitCode
from outbox_core.cli.terminal import output, print_message

from outbox_demo.display import open_display, print_outcome
from outbox_demo.environment import Environment
from outbox_demo.options import DemoOptions
from outbox_demo.outcome import Outcome
from outbox_demo.scenario import run_demo


def demo(
    seconds: Annotated[float, typer.Option(min=5, help="How long the application writes.")] = 40,
    rate: Annotated[float, typer.Option(min=1, help="Records per second, approximately.")] = 300,
    keys: Annotated[int, typer.Option(min=1, help="How many different keys.")] = 200,
    engine: Annotated[str, typer.Option(help="The engine of the harvesters: spark or inline.")] = "spark",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running after the audit, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch a demonstration: records flow, the leader is killed, an audit compares.

    Starts a PostgreSQL, a Kafka broker, two harvesters and an application that writes orders. Fetches Kafka's
    jars once. Exits with 1 if anything was lost, foreign or out of order.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        outcome = _run(DemoOptions(seconds, rate, keys, engine, keep))
    except KeyboardInterrupt:
        print_message("stopped; nothing is left running")
        raise typer.Exit(128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if not outcome.good:
        raise typer.Exit(ExitCode.FAILED)


def _run(options: DemoOptions) -> Outcome:
    console = output()
    display = open_display(console)
    with Environment(options.engine, display) as environment:
        with display:
            outcome = run_demo(options, environment, display)
        print_outcome(console, outcome)
        environment.failed = not outcome.good
        if options.keep:
            _serve(environment)
    return outcome


def _serve(environment: Environment) -> None:
    """Leaves everything running until Ctrl-C."""
    alive = next(name for name, each in environment.harvesters.items() if not each.killed)
    console = output()
    console.print("\nStill running, until Ctrl-C:")
    console.print(f"  PostgreSQL  {environment.dsn}", soft_wrap=True)
    console.print(f"  Kafka       {environment.bootstrap}", soft_wrap=True)
    console.print(
        f"  to look     outbox status --watch -f {environment.settings_file(alive)}", soft_wrap=True
    )
    try:
        while not Event().wait(1.0):
            environment.check()
    except KeyboardInterrupt:
        print_message("stopped; nothing is left running")


def _terminate(number: int, _: FrameType | None) -> None:
    """Ends the program in order, so that everything is torn down."""
    sys.exit(128 + number)


COMMAND = Command(
    demo,
    (
        "outbox demo",
        "outbox demo --seconds 120 --rate 1000",
        "outbox demo --keep   # leave everything running after the audit",
    ),
)
