"""``outbox new-engine``: creates the plugin for another place where lanes run."""

from pathlib import Path

from outbox_sdk.registry import Seam

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.new_driver import DirectoryOption, NameArgument, create


def new_engine(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create an engine: a distribution that works, with processes of this machine.

    Its tests pass. Put your own way to run a function elsewhere in the place of these processes, and the
    tests say whether it does as well. You need not register it anywhere: install it, and **engine: NAME**
    works.
    """
    testing = "pytest       # passes; then put your own processes in the place of this machine's"
    create(Seam.ENGINE, name, directory, testing=testing, json=json)


COMMAND = Command(
    new_engine,
    (
        "outbox new-engine my_cluster",
        "outbox new-engine my_cluster --directory ~/src   # writes ~/src/outbox-my-cluster",
    ),
)
