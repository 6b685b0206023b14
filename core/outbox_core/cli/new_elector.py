"""``outbox new-elector``: creates the plugin for another coordinator of elections."""

from pathlib import Path

from outbox_sdk.registry import Seam

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.new_driver import DirectoryOption, NameArgument, create


def new_elector(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create an elector on another coordinator: a distribution that works, with a file as the coordinator.

    Its tests pass. Put your coordinator in the place of the file, and they say whether it does as well.
    You need not register it anywhere: install it, and **driver: NAME** works.
    """
    testing = "pytest       # passes; then put your coordinator in the place of the file"
    create(Seam.ELECTOR, name, directory, testing=testing, json=json)


COMMAND = Command(
    new_elector,
    (
        "outbox new-elector my_lock",
        "outbox new-elector my_lock --directory ~/src   # writes ~/src/outbox-my-lock",
    ),
)
