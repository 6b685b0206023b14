"""Asks before an action that cannot be undone: for a confirmation, and for the reason."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from typing import Annotated

import typer
from rich.console import RenderableType

from outbox_core.cli.terminal import messages, print_message
from outbox_core.operations import LONGEST_REASON, Operator, ReasonTooLong, check_reason

if sys.platform != "win32":
    import pwd

YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask. Without a terminal, needed where a command asks."),
]


def confirm(about: RenderableType, question: str, *, yes: bool) -> None:
    """Returns if the user agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this command asks for confirmation, and there is no terminal: add --yes")
    messages().print(about)
    typer.confirm(question, abort=True, err=True)


def _usable(reason: str | None) -> str | None:
    try:
        return None if reason is None else check_reason(reason.strip())
    except ReasonTooLong as error:
        raise typer.BadParameter(str(error)) from None


ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        show_default=False,
        callback=_usable,
        help=f"Why, for the journal: {LONGEST_REASON:,} characters at most.",
    ),
]


def operator(reason: str | None, *, yes: bool = False) -> Operator:
    """Returns who works at the command line; asks for the reason if there is a terminal and none is given."""
    if reason is None and not yes and sys.stdin.isatty():
        question = "Why? (for the journal; Enter for no reason)"
        reason = typer.prompt(question, "", show_default=False, value_proc=_usable, err=True)
    return Operator(f"{_user()} at {socket.gethostname()}", "cli", (reason or "").strip())


def _user() -> str:
    """Returns the name of the process's user, whatever the environment says; root's with who became root."""
    if sys.platform == "win32":
        return getpass.getuser()
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a user id without a name, as in containers
        name = f"uid {number}"
    became = os.environ.get("SUDO_USER", "") if number == 0 else ""
    return f"{name} (sudo by {became})" if became else name


def tell_unnoted(why: str) -> None:
    """Says that an action is done, but that the journal lacks its outcome; an empty text says nothing."""
    if why:
        print_message(f"done, but {why}")
