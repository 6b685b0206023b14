"""The command ``outbox``: parses the command line, calls core, and prints the results."""

import gc

gc.set_threshold(50_000)  # what an import makes stays: to look for garbage among it takes a tenth of a start

from outbox_core.cli.app import main  # noqa: E402 - see above

__all__ = ["main"]
