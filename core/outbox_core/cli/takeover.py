"""``outbox takeover``: takes the records of another cluster over at once, for a planned failover."""

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, NamedTuple

import typer
from outbox_api.seams.affinity import Takeover
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, log_warnings_only
from outbox_core.cli.outboxes import Chosen, OutboxOption, one_outbox
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import TakeoverChanged, UnknownCluster, Verb
from outbox_core.operations.takeovers import origin_of
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.text.printable import printable
from outbox_core.text.wording import date_clock_and_zone


def takeover(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    from_: Annotated[
        int | None,
        typer.Option("--from", metavar="CLUSTER", show_default=False, help="Take the records of this one."),
    ] = None,
    end: Annotated[
        int | None,
        typer.Option("--end", metavar="CLUSTER", show_default=False, help="End the takeover of this one."),
    ] = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take the records of another cluster over at once, and end it; without an option, list the takeovers.

    With the affinity 'cluster', a cluster takes the records of a lost one by itself after the maximum delay.
    Use this command for a planned failover, or if you do not want to wait.

    Run it in one cluster only, with that cluster's configuration. First stop the harvesters of the other
    cluster, and end the takeover before you start them again: what both take is delivered twice.

    It raises the fence, and holds for every later leader until it is ended. You can repeat it.
    """
    if from_ is not None and end is not None:
        raise typer.BadParameter("give either --from or --end")
    if reason and from_ is None and end is None:
        raise typer.BadParameter("--reason is for --from and --end")
    invocation: Invocation = context.obj
    settings = log_warnings_only(invocation.settings(file))
    if from_ is None and end is None:
        _list(settings, outbox, json=json)
        return
    chosen = one_outbox(settings, outbox)
    verb = Verb.END_TAKEOVER if from_ is None else Verb.TAKE_OVER
    cluster = (end or 0) if from_ is None else from_
    _ask(chosen, verb, cluster, yes=yes)
    done = operations.change_takeover(chosen, verb, cluster, operator(reason, yes=yes))
    tell_unnoted(done.unnoted)
    print_json(_as_data(chosen.outbox, done)) if json else _tell(done)


class _Listed(NamedTuple):
    outbox: str
    takeovers: Sequence[Takeover]

    @classmethod
    def of(cls, settings: HarvestSettings) -> "_Listed":
        origin_of(settings)
        with closing(settings.dialect.create().watch()) as view:
            return cls(settings.outbox, view.takeovers())

    def as_data(self) -> dict[str, Any]:
        return {
            "outbox": self.outbox,
            "takeovers": [
                {"cluster": each.cluster, "reason": each.reason, "since": each.since.isoformat()}
                for each in self.takeovers
            ],
        }

    def as_text(self) -> RenderableType:
        if not self.takeovers:
            return "no deliberate takeover is on"
        table = Table("cluster", "since", "reason", box=box.SIMPLE_HEAD, pad_edge=False)
        for each in self.takeovers:
            table.add_row(str(each.cluster), date_clock_and_zone(each.since), Text(printable(each.reason)))
        return table


def _as_data(outbox: str, done: TakeoverChanged) -> dict[str, Any]:
    begun = done.verb is Verb.TAKE_OVER
    return {
        "outbox": outbox,
        "began": done.cluster if begun else None,
        "ended": None if begun else done.cluster,
        "changed": done.changed,
        "token": done.token,
    }


def _tell(done: TakeoverChanged) -> None:
    if done.verb is Verb.TAKE_OVER:
        now = "are taken over at once from now on" if done.changed else "were taken over at once already"
        said = f"the records of cluster {done.cluster} {now}"
    elif done.changed:
        said = f"the takeover of cluster {done.cluster} has ended"
    else:
        said = f"there was no takeover of cluster {done.cluster}"
    output().print(said, soft_wrap=True)
    if done.token is not None:
        print_message(f"The token is {done.token} now. The leader restarts its lanes by itself.")


def _list(settings: Settings, outbox: str | None, *, json: bool) -> None:
    chosen = Chosen.by_user(settings, outbox)
    chosen.show(chosen.look(_Listed.of), _Listed.as_data, _Listed.as_text, json=json)


def _ask(settings: HarvestSettings, verb: Verb, cluster: int, *, yes: bool) -> None:
    try:
        operations.check_cluster(settings, verb, cluster)
    except UnknownCluster as error:
        raise typer.BadParameter(str(error)) from error
    confirm(
        Text(f"outbox {printable(settings.outbox)}: {verb.effect(cluster)}"), verb.about.question, yes=yes
    )


COMMAND = Command(
    takeover,
    (
        "outbox takeover -f outbox.yaml",
        "outbox takeover -f outbox.yaml --from 2 --reason 'cluster 2 moves to another building'",
        "outbox takeover -f outbox.yaml --end 2",
    ),
)
