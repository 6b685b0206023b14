"""What ``outbox demo`` runs: a demonstration, its display and its exit code."""

import signal
import sys
from threading import Event
from types import FrameType
from typing import Literal

import typer
from outbox_core.cli.exits import ExitCode
from outbox_core.cli.terminal import output, print_message

from outbox_demo.display import open_display, print_outcome
from outbox_demo.environment import Environment
from outbox_demo.options import DemoOptions
from outbox_demo.outcome import Outcome
from outbox_demo.scenario import run_demo


def demo(*, seconds: float, rate: float, keys: int, engine: Literal["spark", "inline"], keep: bool) -> None:
    """Runs a demonstration on the terminal; the entry point of ``outbox demo``, whose options these are.

    Args:
        seconds: How long the application writes.
        rate: Records that the application writes per second, approximately.
        keys: The number of record keys.
        engine: The engine of both harvesters.
        keep: Whether servers and harvesters keep running after the audit, until Ctrl-C.

    Raises:
        typer.Exit: The demonstration was interrupted, or anything was lost, foreign or out of order.
        OutboxError: A server, a harvester, the application or the consumer failed.
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
