"""``outbox new-dialect``: creates the plugin for another database."""

from pathlib import Path

from outbox_sdk.registry import Seam

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.new_driver import DirectoryOption, NameArgument, create


def new_dialect(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create a dialect for another database: a distribution whose tests say what to write next.

    You need not register it anywhere: install it, and **driver: NAME** works.
    """
    testing = "pytest -x    # the first failure says what to write; then the next one does"
    create(Seam.DIALECT, name, directory, testing=testing, json=json)


COMMAND = Command(
    new_dialect,
    (
        "outbox new-dialect my_db",
        "outbox new-dialect my_db --directory ~/src   # writes ~/src/outbox-my-db",
    ),
)
