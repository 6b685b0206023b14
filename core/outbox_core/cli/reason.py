"""Who works at the command line, and why."""

import getpass
import socket
import sys
from typing import Annotated

import typer

from outbox_core.cli.terminal import print_message
from outbox_core.operations import Operator

ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="TEXT", show_default=False, help="Why, for the journal. A terminal asks for it."
    ),
]


def operator(reason: str | None, *, yes: bool = False) -> Operator:
    """Returns who works at the command line; asks for the reason if there is a terminal and none was given.

    Args:
        reason: The reason that the command line gives; ``None`` for none.
        yes: Whether the command line asks for no questions.

    Raises:
        typer.Abort: The user ended the program instead of answering.
    """
    if reason is None and not yes and sys.stdin.isatty():
        reason = typer.prompt("Why? (for the journal; Enter for no reason)", "", show_default=False, err=True)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = "unknown"
    return Operator(f"{user} at {socket.gethostname()}", "cli", (reason or "").strip())


def tell_unnoted(why: str) -> None:
    """Says that a deed is done, but that the journal lacks its outcome; an empty text says nothing."""
    if why:
        print_message(f"done, but {why}")
