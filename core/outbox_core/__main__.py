"""Runs the command line: ``python -m outbox_core`` is ``outbox``."""

from outbox_core.cli import main

main()
