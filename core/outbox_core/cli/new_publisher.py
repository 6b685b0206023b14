"""``outbox new-publisher``: creates the plugin for another broker."""

from pathlib import Path

from outbox_sdk.registry import Seam

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.new_driver import DirectoryOption, NameArgument, create


def new_publisher(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create a publisher to another broker: a distribution that works, with files as the broker.

    Its tests pass. Put your broker in the place of the files, and they say whether it does as well. You need
    not register it anywhere: install it, and **driver: NAME** works.
    """
    testing = "pytest       # passes; then put your broker in the place of the files"
    create(Seam.PUBLISHER, name, directory, testing=testing, json=json)


COMMAND = Command(
    new_publisher,
    (
        "outbox new-publisher my_broker",
        "outbox new-publisher my_broker --directory ~/src   # writes ~/src/outbox-my-broker",
    ),
)
