"""``outbox resume``: delivers again what was paused."""

import typer
from outbox_api.seams.pausing import WHOLE, subject_of

from outbox_core import operations
from outbox_core.cli.command import Command
from outbox_core.cli.confirmation import ReasonOption, YesOption, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.pause import TopicOption
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import Verb
from outbox_core.text.printable import printable
from outbox_core.text.wording import duration


def resume(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    topic: TopicOption = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Deliver again what 'outbox pause' has paused; what has waited keeps its order.

    Lanes go on within about a second, as fast as they can. Without a topic it ends the pause of the whole
    outbox; topics that were paused one by one stay paused, and the other way round. To resume what is not
    paused does nothing.
    """
    settings = operated_outbox(context, file, outbox)
    print_message(f"outbox {printable(settings.outbox)}: {Verb.RESUME.effect()}")
    done = operations.resume(settings, topic or WHOLE, operator(reason, yes=yes or json))
    tell_unnoted(done.unnoted)
    ended, subject = done.pause, printable(subject_of(topic or WHOLE))
    if json:
        told = {"outbox": settings.outbox, "topic": topic, "resumed": ended is not None}
        print_json({**told, "lasted_seconds": ended and ended.lasted})
    elif ended is None:
        output().print(f"{subject} was not paused", soft_wrap=True)
    else:
        output().print(f"{subject} was paused for {duration(ended.lasted)}, and goes on", soft_wrap=True)


COMMAND = Command(
    resume,
    (
        "outbox resume -f outbox.yaml --topic orders --reason 'partitions are added'",
        "outbox resume -f outbox.yaml",
    ),
)
