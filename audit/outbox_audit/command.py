"""``outbox audit``: compares the records that were committed with those that arrived."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from outbox_api.base.errors import ConfigError
from outbox_api.support.file_text import present_text
from outbox_core.cli.command import Command, ExitCode
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.progress import progress
from outbox_core.cli.terminal import output, print_json
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_audit import SEQUENCE_HEADER, Comparison, Defect, Isolation, Result, compare


def audit(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    ledger: Annotated[
        str, typer.Option(metavar="FILE", show_default=False, help="The committed records, as JSON lines.")
    ],
    file: FileOption = None,
    outbox: OutboxOption = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            show_default=False,
            help="A topic to read; repeatable. Default: those that the ledger names.",
        ),
    ] = None,
    header: Annotated[str, typer.Option(help="The header with a record's number.")] = SEQUENCE_HEADER,
    isolation: Annotated[
        Isolation, typer.Option(help="Read as a consumer with this isolation.level.")
    ] = Isolation.READ_COMMITTED,
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once", help="Count duplicates as errors, as 'delivery: exactly-once' promises none."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare the records that an application committed with those in the topics.

    The ledger has a line for each committed record, ["key", number] or ["key", number, "topic"]. The numbers
    of a key rise, and a header of each message has its number. If the ledger names no topics, no key may have
    records in more than one of the audited ones. Run it when the outbox is empty: it reads the topics from
    their beginning, waits for open transactions, and changes nothing.

    Exits with 1 if anything was lost, foreign or out of order, or if the ledger is empty; with --exactly-once
    also if any record arrived twice.
    """
    settings = operated_outbox(context, file, outbox)
    kafka = _kafka(settings)
    with progress("reading", "read", quiet=json) as shown:
        found = compare(ledger, topics or [], kafka, header, shown.advance, isolation=isolation)
    good = all(_good(comparison.result, exactly_once=exactly_once) for comparison in found)
    if json:
        audits = [_as_data(comparison, exactly_once=exactly_once) for comparison in found]
        print_json({"good": good, "audits": audits})
    else:
        for comparison in found:
            output().print(_as_table(comparison, exactly_once=exactly_once))
            output().print(_summary(comparison.result, exactly_once=exactly_once))
    if not good:
        raise typer.Exit(ExitCode.FAILED)


def _good(result: Result, *, exactly_once: bool) -> bool:
    return result.exactly_once if exactly_once else result.good


def _kafka(settings: HarvestSettings) -> dict[str, Any]:
    """Returns the Kafka settings among the publisher's options."""
    written = getattr(settings.publisher.options, "kafka", None)
    if not isinstance(written, Mapping):
        raise ConfigError(f"an audit reads Kafka topics, and the publisher is '{settings.publisher.driver}'")
    return {
        name: ",".join(map(str, value)) if isinstance(value, list | tuple) else present_text(value)
        for name, value in written.items()
        if value is not None
    }


def _as_data(comparison: Comparison, *, exactly_once: bool) -> dict[str, Any]:
    result = comparison.result
    return {
        "topics": list(comparison.topics),
        "good": _good(result, exactly_once=exactly_once),
        **{name: number for name, number, _ in _rows(result)},
        "most_stale": dict(result.most_stale),
        "examples": {str(defect): named for defect, named in result.examples.items()},
    }


def _rows(result: Result) -> Sequence[tuple[str, int, str]]:
    by_key = ", ".join(f"'{printable(key)}' {count:,}" for key, count in result.most_stale)
    return (
        ("sent", result.sent, "committed records, according to the ledger"),
        ("delivered", result.delivered, "of them, each counted once"),
        ("lost", result.lost, ""),
        ("foreign", result.foreign, ""),
        ("overtaken", result.overtaken, ""),
        ("stale", result.stale, f"by key: {by_key}" if by_key else ""),
        ("reappeared", result.reappeared, "allowed if not stale" if result.reappeared else ""),
        (
            "repeated",
            result.repeated,
            "allowed in order, unless delivery is exactly once" if result.repeated else "",
        ),
        (
            "duplicates",
            result.duplicates,
            "records that arrived again, each counted once" if result.duplicates else "",
        ),
    )


def _as_table(comparison: Comparison, *, exactly_once: bool) -> Table:
    title = Text(", ".join(map(printable, comparison.topics)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("")
    table.add_column("records", justify="right")
    table.add_column("")
    defects = set(Defect) if exactly_once else set(Defect) - {Defect.DUPLICATES}
    for name, number, remark in _rows(comparison.result):
        wrong = number and name in defects
        table.add_row(Text(name), Text(f"{number:,}", "bold red" if wrong else ""), Text(remark, "dim"))
    return table


def _summary(result: Result, *, exactly_once: bool) -> Text:
    good = _good(result, exactly_once=exactly_once)
    return Text(f"{result.summary(exactly_once=exactly_once)}\n", "green" if good else "bold red")


COMMAND = Command(
    audit,
    (
        "outbox audit -f outbox.yaml --ledger ledger.jsonl",
        "outbox audit -f outbox.yaml --ledger ledger.jsonl --topic orders --header Number",
        "outbox audit -f outbox.yaml --ledger ledger.jsonl --exactly-once",
        "outbox pump --topic trial --ledger trial.jsonl && outbox audit --ledger trial.jsonl",
    ),
)
