"""``manage.py outbox``: the commands of the program ``outbox``, with this project's settings."""

from __future__ import annotations

from argparse import REMAINDER
from importlib.util import find_spec
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Hands the command line over; passwords go from ``DATABASES`` to the harvester within this process."""

    help = "outbox with this project's settings: 'manage.py outbox run', check, status, parked, …"
    requires_system_checks = ()  # a harvester needs no URLs, and 'outbox check' tells more

    def add_arguments(self, parser: Any) -> None:
        """Takes everything as it is; without arguments, outbox lists its commands."""
        parser.add_argument("arguments", nargs=REMAINDER, help="the command line of outbox")

    def handle(self, *_: object, arguments: list[str], **__: object) -> None:
        """Runs a command of outbox, and exits with its code."""
        if not find_spec("outbox_core"):
            raise CommandError("this command needs outbox-harvester: pip install outbox-harvester")
        from outbox_core.cli import main  # noqa: PLC0415 - an application that only stashes has none

        from outbox_django.configuration import load  # noqa: PLC0415 - likewise

        main(arguments, load)
