"""``outbox takeover``: takes the records of another cluster over at once, for a planned failover."""

from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Annotated, Any, NamedTuple

import typer
from outbox_sdk.affinity import MAX_CLUSTER, Origin, Takeover
from outbox_sdk.errors import ConfigError
from outbox_sdk.outbox_table import OutboxTable
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core.cli.command import Command
from outbox_core.cli.confirmation import YesOption, confirm
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, log_warnings_only
from outbox_core.cli.outboxes import Chosen, OutboxOption, one_outbox
from outbox_core.cli.raising import lane_count, operator
from outbox_core.cli.terminal import output, print_json, print_message, printable
from outbox_core.config import HarvestSettings, Settings

_BEGIN_EFFECT = (
    "This cluster takes the records of cluster {0} at once, whatever their age, until you end it. Stop the "
    "harvesters of cluster {0} first: those that run go on, and then each of its records is delivered twice. "
    "The fence is raised, so that the present leader's lanes begin anew within a second or two."
)
_END_EFFECT = (
    "From now on this cluster takes records of cluster {0} only once they are old enough, also those that it "
    "has taken before and not delivered. The fence is raised, so that the present leader's lanes "
    "begin anew within a second or two."
)


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
    reason: Annotated[
        str, typer.Option(metavar="TEXT", show_default=False, help="Why, for 'outbox status'; with --from.")
    ] = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take the records of another cluster over at once, and end it; without an option, list the takeovers.

    Several clusters may share one replicated outbox (the affinity 'cluster'). Each takes its own records. It
    takes those of a lost cluster by itself, but only after the maximum delay. Use this command for a planned
    failover, or if you know that a cluster is lost and do not want to wait.

    Run it in the cluster that takes over, with the configuration of that cluster; and in one cluster only.
    First stop the harvesters of the other cluster: the two do not know of each other, and what both take is
    delivered twice. When that cluster is back, end the takeover here before you start its harvesters.

    A takeover is stored in the database of this cluster, beside the fence. It holds for every later leader,
    until it is ended. 'outbox status' and 'outbox health' tell of it. The command raises the fence, so that
    the present leader heeds it; to repeat the command does no harm.
    """
    if from_ is not None and end is not None:
        raise typer.BadParameter("give either --from or --end")
    if reason and from_ is None:
        raise typer.BadParameter("--reason is for --from")
    invocation: Invocation = context.obj
    settings = log_warnings_only(invocation.settings(file))
    if from_ is None and end is None:
        _list(settings, outbox, json=json)
        return
    chosen = one_outbox(settings, outbox)
    origin = _origin(chosen)
    with closing(chosen.dialect.create().connect()) as table:
        if from_ is not None:
            _refuse(from_, origin, {each.cluster for each in table.origins()})
            _ask(_BEGIN_EFFECT, "Take over?", chosen, from_, yes=yes)
            changed = table.begin_takeover(from_, reason)
        else:
            assert end is not None  # noqa: S101 - one of the two was given
            _refuse(end, origin, {each.cluster for each in table.takeovers()})
            _ask(_END_EFFECT, "End the takeover?", chosen, end, yes=yes)
            changed = table.end_takeover(end)
        done = _Done(chosen.outbox, from_, end, changed, _raise_fence(table, chosen))
    print_json(done.as_data()) if json else done.tell()


class _Listed(NamedTuple):
    """The deliberate takeovers of one outbox."""

    outbox: str
    takeovers: Sequence[Takeover]

    @classmethod
    def of(cls, settings: HarvestSettings) -> "_Listed":
        _origin(settings)
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
            since = each.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
            table.add_row(str(each.cluster), since, Text(printable(each.reason)))
        return table


class _Done(NamedTuple):
    """What the command has done.

    Attributes:
        outbox: The table.
        began: The cluster that is taken over, or ``None``.
        ended: The cluster whose takeover has ended, or ``None``.
        changed: Whether that is news.
        token: The token that was raised; ``None`` if nobody has ever led.
    """

    outbox: str
    began: int | None
    ended: int | None
    changed: bool
    token: int | None

    def as_data(self) -> dict[str, Any]:
        return {
            "outbox": self.outbox,
            "began": self.began,
            "ended": self.ended,
            "changed": self.changed,
            "token": self.token,
        }

    def tell(self) -> None:
        if self.began is not None:
            now = "are taken over at once from now on" if self.changed else "were taken over at once already"
            said = f"the records of cluster {self.began} {now}"
        elif self.changed:
            said = f"the takeover of cluster {self.ended} has ended"
        else:
            said = f"there was no takeover of cluster {self.ended}"
        output().print(said, markup=False, soft_wrap=True)
        if self.token is not None:
            print_message(f"The token is {self.token} now. The leader starts its lanes anew by itself.")


def _list(settings: Settings, outbox: str | None, *, json: bool) -> None:
    chosen = Chosen.by_user(settings, outbox)
    chosen.show(chosen.look(_Listed.of), _Listed.as_data, _Listed.as_text, json=json)


def _origin(settings: HarvestSettings) -> Origin:
    origin = settings.affinity.create().origin()
    if origin is None:
        raise ConfigError(
            f"outbox {settings.title} has one cluster only: with the affinity '{settings.affinity.driver}' "
            "its records do not tell where they were written, and all are taken at once"
        )
    return origin


def _refuse(cluster: int, origin: Origin, found: Collection[int]) -> None:
    """Makes sure that a cluster is another one, and known or among those found.

    Args:
        cluster: The number that was given.
        origin: Says which clusters are known.
        found: The others that may be given: to begin, orphans, which have records here; to end, the
            clusters that are taken over.

    Raises:
        typer.BadParameter: It is none of them.
    """
    if cluster == origin.own:
        raise typer.BadParameter(f"this is cluster {cluster}: it takes its own records in any case")
    if cluster not in origin.known and (cluster not in found or not 1 <= cluster <= MAX_CLUSTER):
        others = ", ".join(str(each) for each in origin.known if each != origin.own)
        raise typer.BadParameter(f"there is no cluster {cluster}; the others are {others or 'none'}")


def _ask(effect: str, question: str, settings: HarvestSettings, cluster: int, *, yes: bool) -> None:
    confirm(Text(f"outbox {settings.outbox}: {effect.format(cluster)}"), question, yes=yes)


def _raise_fence(table: OutboxTable, settings: HarvestSettings) -> int | None:
    """Fences the present leader, which does not know of the change; returns the token.

    It does so also where nothing has changed: an earlier call may have ended before it raised the fence.
    """
    held = table.lane_statuses()
    return table.bump(lane_count(held, settings), operator()) if held else None


COMMAND = Command(
    takeover,
    (
        "outbox takeover -f outbox.yaml",
        "outbox takeover -f outbox.yaml --from 2 --reason 'cluster 2 moves to another building'",
        "outbox takeover -f outbox.yaml --end 2",
    ),
)
