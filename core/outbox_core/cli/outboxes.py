"""Which of several outboxes a command is about."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from outbox_api.base.errors import ConfigError, OutboxError

from outbox_core.cli.command import exit_code
from outbox_core.cli.invocation import Invocation, log_warnings_only
from outbox_core.cli.terminal import output, print_error, print_json, print_message
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.outboxes import matching, unknown
from outbox_core.text.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

Result = TypeVar("Result")

OutboxOption = Annotated[
    str | None,
    typer.Option(
        "--outbox",
        "-o",
        metavar="NAME",
        show_default=False,
        help="One of several outboxes: its label below 'outboxes:', or its table.",
    ),
]

_CONCURRENT = 8
_MAX_NAMED = 20


def outboxes(settings: Settings, wanted: str | None) -> Sequence[HarvestSettings]:
    """Returns the outboxes that ``--outbox`` names, or all; looks for those of templates in the database."""
    named = [outbox for outbox in settings.outboxes if wanted in {outbox.label, outbox.outbox}]
    if named:
        return named
    found, failed, _ = _all(settings)
    if wanted is None:
        if failed:
            raise failed[0][1]
        return found
    named = [
        outbox
        for outbox in found
        if wanted in {outbox.label, outbox.outbox} or outbox.label.startswith(f"{wanted}/")
    ]
    if not named and failed:
        raise failed[0][1]
    if not named:
        raise ConfigError(f"there is no outbox '{printable(wanted)}': {_named(found)}")
    return named


def one_outbox(settings: Settings, wanted: str | None) -> HarvestSettings:
    """Returns the outbox that ``--outbox`` names, or the only one."""
    found = outboxes(settings, wanted)
    if len(found) != 1:
        raise ConfigError(f"choose one of several outboxes with --outbox: {_named(found)}")
    return found[0]


def operated_outbox(context: typer.Context, file: Path | None, outbox: str | None) -> HarvestSettings:
    """Returns the outbox that an operator's command is about; raises as :func:`one_outbox`."""
    invocation: Invocation = context.obj
    return one_outbox(log_warnings_only(invocation.settings(file)), outbox)


def watched_outboxes(context: typer.Context, file: Path | None, outbox: str | None) -> "Chosen":
    """Returns the outboxes that a command looks at; raises as :meth:`Chosen.by_user`."""
    invocation: Invocation = context.obj
    return Chosen.by_user(log_warnings_only(invocation.settings(file)), outbox)


@dataclass(frozen=True)
class Chosen:
    """The outboxes that a command is about."""

    outboxes: Sequence[HarvestSettings]
    single: bool
    failed: Sequence[tuple[str, OutboxError]] = ()
    unmatched: Sequence[str] = ()

    @classmethod
    def by_user(cls, settings: Settings, wanted: str | None) -> "Chosen":
        """Returns what ``--outbox`` names, or all."""
        if wanted is None and settings.several:
            everything, failed, unmatched = _all(settings)
            return cls(everything, single=False, failed=failed, unmatched=unmatched)
        found = outboxes(settings, wanted)
        return cls(found, not settings.several or (wanted is not None and len(found) == 1))

    def look(self, look: Callable[[HarvestSettings], Result]) -> list[tuple[str, Result | OutboxError]]:
        """Calls a function for each outbox, a few at the same time, as a server that is down makes it wait.

        Returns:
            The outbox's title, and the result or the error, in the order of the outboxes; templates that
            failed come last.
        """
        if self.single:
            return [(outbox.title, look(outbox)) for outbox in self.outboxes]

        def look_at(outbox: HarvestSettings) -> tuple[str, Result | OutboxError]:
            try:
                return outbox.title, look(outbox)
            except OutboxError as error:
                return outbox.title, error

        with ThreadPoolExecutor(max_workers=_CONCURRENT) as pool:
            return [*pool.map(look_at, self.outboxes), *self.failed]

    def show(
        self,
        found: Sequence[tuple[str, Result | OutboxError]],
        as_data: Callable[[Result], Any],
        as_text: "Callable[[Result], RenderableType]",
        *,
        json: bool,
        soft_wrap: bool = False,
    ) -> None:
        """Prints what was found: for one outbox alone the result, otherwise by outbox, with errors."""
        results = [(title, result) for title, result in found if not isinstance(result, OutboxError)]
        if json:
            self.show_data(found, as_data)
        elif self.single:
            output().print(as_text(results[0][1]), soft_wrap=soft_wrap)
        else:
            from rich.text import Text  # noqa: PLC0415 - a probe prints none

            for title, result in results:
                output().print(Text(printable(title), "bold"))
                output().print(as_text(result), soft_wrap=soft_wrap)
        self.tell_errors(found, json=json)

    def show_data(
        self, found: Sequence[tuple[str, Result | OutboxError]], as_data: Callable[[Result], Any]
    ) -> None:
        """Prints what was found as JSON: of one outbox alone the result, else by outbox, with errors."""
        results = [result for _, result in found if not isinstance(result, OutboxError)]
        print_json(as_data(results[0]) if self.single else self.as_data(found, as_data))

    @staticmethod
    def as_data(found: Sequence[tuple[str, Result | OutboxError]], as_data: Callable[[Result], Any]) -> Any:
        """Returns what was found of several outboxes as JSON data; those with errors come last."""
        data = [
            {"label": title, **as_data(result)}
            for title, result in found
            if not isinstance(result, OutboxError)
        ]
        failed = [
            {"label": title, "error": str(error)} for title, error in found if isinstance(error, OutboxError)
        ]
        return {"outboxes": [*data, *failed]}

    @staticmethod
    def tell_errors(found: Sequence[tuple[str, object]], *, json: bool) -> None:
        """Prints the outboxes that could not be looked at; the exit code is that of the first error."""
        errors = [(title, error) for title, error in found if isinstance(error, OutboxError)]
        for title, error in errors if not json else ():
            print_error(f"{printable(title)}: {error}", error.code)
        if errors:
            raise typer.Exit(exit_code(errors[0][1]))


def _all(settings: Settings) -> tuple[list[HarvestSettings], list[tuple[str, OutboxError]], list[str]]:
    """Returns all outboxes, templates that could not be looked for, with the error, and those without any."""
    found, failed, unmatched = [*settings.outboxes], [], []
    for template in settings.templates:
        try:
            named = unknown(matching(template), found)
        except OutboxError as error:
            failed.append((template.label, error))
            continue
        if not named:
            unmatched.append(template.label)
            print_message(f"outboxes.{template.label}: no table matches '{template.pattern}'")
        found += named
    return found, failed, unmatched


def _named(found: Sequence[HarvestSettings]) -> str:
    titles = [printable(outbox.title) for outbox in found]
    more = [f"and {len(titles) - _MAX_NAMED} more"] if len(titles) > _MAX_NAMED else []
    return ", ".join([*titles[:_MAX_NAMED], *more]) or "the configuration names none"
