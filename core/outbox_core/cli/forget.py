"""``outbox forget``: erases what the outbox still has of a key."""

from typing import Annotated, Any

import typer
from outbox_api.base.errors import ConfigError
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.progress import progress
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import Verb
from outbox_core.operations.erasing import Receipt
from outbox_core.text.printable import printable


def forget(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The key, whole.")],
    file: FileOption = None,
    outbox: OutboxOption = None,
    tombstone: Annotated[
        str | None,
        typer.Option(
            "--tombstone",
            metavar="TOPIC",
            show_default=False,
            help="Also stash a record of the key without a value: a compacted topic drops earlier ones.",
        ),
    ] = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Erase a key: from kept records, from skipped dead letters, and from the texts of the journal.

    It deletes 1,000 records in a transaction, while harvesters run. In the journal the key's digest takes its
    place. If it was interrupted, repeat it.

    Records that wait in the outbox stay, and the receipt counts them. They are kept once they are delivered:
    repeat the command then. If the key is parked, it does nothing and exits with 1: retry or skip the record
    first.

    Kafka is not touched: its records go when their retention ends, in a compacted topic after '--tombstone'.
    """
    try:
        operations.check_erasure(key, tombstone)
    except ConfigError as error:
        raise typer.BadParameter(printable(str(error))) from None
    settings = operated_outbox(context, file, outbox)
    live = operations.look_for_key(settings, key)
    told = f"outbox {printable(settings.outbox)}: {Verb.ERASE.effect()} {live.waiting} wait in the outbox."
    confirm(Text(told), Verb.ERASE.about.question, yes=yes)
    with progress("erasing", "erased", quiet=json) as bar:
        done = operations.erase(settings, key, operator(reason, yes=yes), tombstone or "", bar.advance)
    tell_unnoted(done.unnoted)
    print_json(_as_data(settings.outbox, done)) if json else _tell(done)


def _as_data(outbox: str, done: Receipt) -> dict[str, Any]:
    return {
        "outbox": outbox,
        "key": done.digest,
        "began": done.began.isoformat(),
        "ended": done.ended.isoformat(),
        "kept": done.kept,
        "dead_letters": done.dead_letters,
        "journal": done.journal,
        "waiting": done.waiting,
        "tombstone": done.tombstone or None,
    }


def _tell(done: Receipt) -> None:
    counted = f"{done.kept} kept records, {done.dead_letters} dead letters, {done.journal} journal entries"
    output().print(f"erased key {done.digest}: {counted}", soft_wrap=True)
    if done.waiting:
        print_message(
            f"{done.waiting} records wait in the outbox. Erase the key again once they are delivered."
        )
    if done.tombstone:
        print_message(
            f"A tombstone goes to topic {done.tombstone}. If it is kept, erase the key again afterwards."
        )
    else:
        print_message("Kafka is not touched: for a compacted topic, add --tombstone TOPIC.")


COMMAND = Command(
    forget,
    (
        "outbox forget -f outbox.yaml --key customer-4711 --reason 'request 17'",
        "outbox forget -f outbox.yaml --key customer-4711 --tombstone customers --yes --json",
    ),
)
