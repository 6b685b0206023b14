"""``outbox schema``: the JSON schema of a configuration, for editors."""

from outbox_core.cli.command import Command
from outbox_core.cli.terminal import print_json


def schema() -> None:
    """Print the JSON schema of outbox.yaml for editors, with the options of all installed drivers."""
    from outbox_core.config import schema as made  # noqa: PLC0415 - it imports every driver

    print_json(made.schema())


COMMAND = Command(schema, ("outbox schema > outbox.schema.json",))
