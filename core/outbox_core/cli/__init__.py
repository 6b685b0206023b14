"""The command ``outbox``: parses the command line, calls core, and prints the results."""

from outbox_core.cli.app import main

__all__ = ["main"]
