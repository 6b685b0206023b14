"""``outbox pump``: writes records into the outbox, for trials and load tests, like goharvest's ``pump``."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any

import typer
from outbox_api import DriverError, Record, Stasher
from outbox_core.cli.command import Command
from outbox_core.cli.invocation import FileOption, JsonOption, StopSignals
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.progress import progress
from outbox_core.cli.terminal import output, print_json
from outbox_core.settings import HarvestSettings
from outbox_core.text.duration import format_duration, parse_duration

from outbox_audit import SEQUENCE_HEADER, Ledger, read_entries


def pump(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    keys: Annotated[int, typer.Option(min=1, help="How many different keys.")] = 100,
    records: Annotated[int, typer.Option(min=0, help="How many records; 0 to continue until Ctrl-C.")] = 1000,
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two records; a bare number is milliseconds.")
    ] = "0",
    blank: Annotated[
        bool, typer.Option("--blank", help="Write tombstones: records without a value.")
    ] = False,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic of all records.")] = "pump",
    batch: Annotated[int, typer.Option(min=1, help="Records in one transaction.")] = 20,
    value_size: Annotated[
        int | None, typer.Option(min=0, show_default=False, help="Characters of each value.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(show_default=False, help="Writes the same records every time.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Append the committed records, for 'outbox audit'."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write records into the outbox, as an application would.

    Each record has its number in the header 'Seq', so that a reader can find out what is missing. Numbers
    start at 0, or after the last one of an existing ledger.
    """
    pause = _pause(interval)
    settings = operated_outbox(context, file, outbox)
    numbers = count(_next_number(ledger))
    made = _records(random.Random(seed), numbers, topic, keys, None if blank else value_size, blank=blank)  # noqa: S311 - load, not secrets
    wanted = islice(made, records) if records else made
    with (
        StopSignals() as signals,
        _connection(settings) as connection,
        Ledger(ledger) if ledger else nullcontext() as committed,
        progress("stashing", "stashed", records, quiet=json) as shown,
    ):
        stasher = Stasher(settings.outbox, settings.dialect.driver)
        begin = time.monotonic()
        done = 0
        while not signals.requested.is_set() and (some := list(islice(wanted, batch))):
            # The rate holds over the whole run: later batches make up for a delay.
            signals.requested.wait(
                max(0.0, begin + (done + len(some)) * pause - time.monotonic()) if pause else 0
            )
            if signals.requested.is_set():
                break
            stasher.stash_many(connection, some)
            connection.commit()
            done += len(some)
            if committed:
                committed.write((each.key, _number(each), each.topic) for each in some)
            shown.advance(len(some))
        seconds = time.monotonic() - begin
    rate = done / seconds if seconds else 0.0
    if json:
        print_json({"records": done, "seconds": round(seconds, 3), "records_per_second": round(rate, 1)})
    else:
        output().print(f"stashed {done:,} records in {format_duration(seconds)}: {rate:,.0f} records/s")


def _pause(interval: str) -> float:
    try:
        number = interval.replace(".", "", 1).isdigit()
        return parse_duration(f"{interval}ms" if number else interval)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--interval") from None


def _next_number(ledger: Path | None) -> int:
    if ledger is None or not ledger.exists():
        return 0
    return 1 + max((entry.sequence for entry in read_entries(ledger)), default=-1)


def _number(record: Record) -> int:
    return int(dict(record.headers)[SEQUENCE_HEADER] or 0)


def _records(
    source: random.Random, numbers: Iterator[int], topic: str, keys: int, size: int | None, *, blank: bool
) -> Iterator[Record]:
    for number in numbers:
        drawn = source.getrandbits(64)
        value = f"value-{drawn:x}"
        if size is not None:
            value = (value + "." * size)[:size]
        yield Record(
            topic, f"key-{drawn % keys:x}", None if blank else value, ((SEQUENCE_HEADER, str(number)),)
        )


@contextmanager
def _connection(settings: HarvestSettings) -> Iterator[Any]:
    """Yields a connection; raises errors of the database as errors of the driver."""
    connection = settings.dialect.create().stash_connection()
    try:
        yield connection
    except connection.Error as error:  # PEP 249's optional extension, which our drivers have
        raise DriverError(f"cannot write to the outbox: {error}", retryable=False) from error
    finally:
        connection.close()


COMMAND = Command(
    pump,
    (
        "outbox pump -f outbox.yaml --keys 10 --records 100000 --topic orders",
        "outbox pump -f outbox.yaml --records 0 --interval 10ms --batch 1   # 100 records/s until Ctrl-C",
        "outbox pump -f outbox.yaml --blank   # tombstones",
        "outbox pump -f outbox.yaml --topic trial --ledger trial.jsonl   # for 'outbox audit'",
    ),
)
