"""Harvesters of a cut-over: the commands that the page names."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.harvesters import Harvester, outbox, until

PROCESSES = 2
SETTLED = 20
"""Records that may wait while the application writes; without writers none may."""
PATIENCE = 120.0


def prepare(settings: Path) -> None:
    """Runs ``outbox init``, then ``outbox check``."""
    for command in ("init", "check"):
        outbox(settings, command)


def start(stack: ExitStack, settings: Path) -> list[Harvester]:
    """Starts the harvesters of a file; what still runs when the stack is left is killed."""
    started = []
    for number in range(1, PROCESSES + 1):
        harvester = Harvester(f"outbox-{number}", settings, "--engine", "inline")
        stack.callback(harvester.close)
        started.append(harvester)
    return started


def wait_for_backlog(settings: Path, most: int) -> None:
    """Waits until ``outbox status`` shows a leader, and a backlog of at most so many records."""

    def settled() -> bool:
        status = outbox(settings, "status")
        records = status["backlog"]["records"]
        return status["leader"] is not None and records is not None and records <= most

    until(settled, f"at most {most} records wait", PATIENCE, pause=0.5)


def check(settings: Path) -> None:
    """Makes the page's check of a cut-over: the backlog falls, and no key is parked."""
    wait_for_backlog(settings, SETTLED)
    assert not outbox(settings, "parked", "list")["letters"], "keys are parked"


def leave(harvesters: list[Harvester]) -> None:
    """Stops all harvesters with SIGTERM."""
    for each in harvesters:
        each.leave()
