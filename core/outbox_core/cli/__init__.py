"""The command ``outbox``: reads the command line, calls core, and tells people what came of it."""

from outbox_core.cli.app import main

__all__ = ["main"]
