"""What an operator can do to an outbox: each verb, with all that is said of it before and after it is done.

The page, the JSON side and its description, the journal and the texts of commands are made of this. To add
one: a verb here; the function that does it in this package, and its line in
:func:`outbox_core.operations.perform`; its command, for dead letters a line in ``cli/parked.py``; what the
database does for it, in the contract of the dialects; and its row in ``docs/cli.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Self

from outbox_api.seams.parking import DeadLetterStatus


class Target(Enum):
    """What a verb is done to."""

    LETTERS = auto()
    """Dead letters, which change."""
    CONTENTS = auto()
    """Dead letters, which are only read."""
    LEADER = auto()
    LANES = auto()
    """Lanes that publish in transactions; somebody at the brokers does this, so it is a command only."""
    CLUSTER = auto()
    KEPT = auto()
    """Kept records, chosen by conditions; it may take hours, so whoever does it watches it."""
    REPLAY = auto()
    """A replay that has begun, by its name."""
    TOPIC = auto()
    """A topic, or all of them."""
    PARTITIONS = auto()
    """The partitions of a topic at the broker; consumers are waited for, so whoever does it watches it."""
    KEY = auto()
    """All that is left of a key."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What is said of a verb."""

    target: Target  # what it is done to
    label: str  # what it is called on a button; {0} stands for the cluster
    summary: str
    effect: str  # what it does to the order of records, and what is lost; see :meth:`Verb.effect`
    done: str = ""  # what has become of dead letters afterwards: the end of "2 records were …"
    status: DeadLetterStatus | None = None  # the status that dead letters must have; None for any
    question: str = ""  # what a command asks before; empty if consumers miss, repeat and reorder nothing


class Verb(StrEnum):
    """What an operator does; journals and programs rely on these names."""

    about: About

    def __new__(cls, name: str, about: About) -> Self:
        """Makes a member."""
        verb = str.__new__(cls, name)
        verb._value_, verb.about = name, about
        return verb

    RETRY = (
        "retry",
        About(
            target=Target.LETTERS,
            label="Retry",
            summary="Try the failed records of parked keys again",
            effect=(
                "The order of records is kept: of each key the failed record is tried first, and those "
                "behind it follow. A record that fails again is parked again, with its key."
            ),
            done="tried again",
            status=DeadLetterStatus.PARKED,
        ),
    )
    SKIP = (
        "skip",
        About(
            target=Target.LETTERS,
            label="Skip",
            summary="Give up the failed records of parked keys",
            effect=(
                "The failed records are deleted from the outbox and not delivered: consumers see a gap."
                " The records behind them flow, in their order. Each failed record is kept as a skipped"
                " dead letter, for as long as 'keepSkipped' says, and can be redriven."
            ),
            done="skipped",
            status=DeadLetterStatus.PARKED,
            question="Give up these records, undelivered?",
        ),
    )
    REDRIVE = (
        "redrive",
        About(
            target=Target.LETTERS,
            label="Redrive",
            summary="Stash skipped records again",
            effect=(
                "The records are stashed again, behind all records that their keys have in the outbox "
                "now. So consumers see them later than records that were written after them: out of "
                "their original order."
            ),
            done="stashed again",
            status=DeadLetterStatus.SKIPPED,
            question="Stash these records again, out of their order?",
        ),
    )
    RAISE_FENCE = (
        "raise-fence",
        About(
            target=Target.LEADER,
            label="Stop the leader",
            summary="Stop the present leader, and fence it",
            effect=(
                "The present leader is fenced: from now on it cannot mark, purge or reset anything. It "
                "notices this at its next statement, and stops its lanes. Then the process that the "
                "election names, usually the same one, raises the token again and continues within a "
                "second or two. Nothing is lost and the order is kept; records in flight are published "
                "again, unless delivery is exactly-once."
            ),
            question="Stop the present leader?",
        ),
    )
    FORGET = (
        "forget",
        About(
            target=Target.LANES,
            label="Forget",
            summary="Take what lanes may have published for unpublished",
            effect=(
                "All rows of these lanes are treated as unpublished: they are delivered in order, some "
                "perhaps for a second time. Nothing is lost. Use this only for lanes that refuse to "
                "start because the broker has no checkpoint of them."
            ),
            question="Forget what they may have published?",
        ),
    )
    TAKE_OVER = (
        "take-over",
        About(
            target=Target.CLUSTER,
            label="Take over cluster {0}",
            summary="Take over the records of another cluster at once",
            effect=(
                "This cluster takes the records of cluster {0} at once, whatever their age, until you "
                "end it. Stop the harvesters of cluster {0} first: those that run go on, and then each "
                "of its records is delivered twice, and consumers may see a repetition behind later "
                "records. The fence is raised, so that the present leader's lanes restart within a "
                "second or two."
            ),
            question="Take over?",
        ),
    )
    END_TAKEOVER = (
        "end-takeover",
        About(
            target=Target.CLUSTER,
            label="End the takeover of cluster {0}",
            summary="End a deliberate takeover",
            effect=(
                "From now on this cluster takes records of cluster {0} only once they are old enough, "
                "also those that it has taken before and not delivered. The fence is raised, so that "
                "the present leader's lanes restart within a second or two."
            ),
            question="End the takeover?",
        ),
    )
    REVEAL = (
        "reveal",
        About(
            target=Target.CONTENTS,
            label="Show",
            summary="Return what the records of dead letters contain",
            effect=(
                "Shows the values and headers of the records, and changes nothing. The journal notes "
                "who has seen them."
            ),
        ),
    )

    REPLAY = (
        "replay",
        About(
            target=Target.KEPT,
            label="Replay",
            summary="Stash kept records again",
            effect=(
                "The records are stashed again, each once, behind everything that the outbox has now. They "
                "keep their order among each other, and so do those that are written meanwhile. But "
                "consumers see old states of a key again, behind newer ones and mixed with those: a "
                "consumer that stores the last state is set back, until the last replayed record of the "
                "key, or for good where a newer one is not among them. Each has the replay's name in the "
                "header outbox-replay, and a new outbox-id, so that no inbox takes it for a repetition."
            ),
            question="Replay these records?",
        ),
    )
    GIVE_UP = (
        "give-up",
        About(
            target=Target.REPLAY,
            label="Give up",
            summary="End a replay that is under way",
            effect=(
                "No more records of the replay are stashed. Those that it has stashed are delivered, so "
                "consumers that store the last state keep an old one until a newer one comes. The replay "
                "cannot go on, and its name cannot be used again."
            ),
            question="Give up this replay?",
        ),
    )
    ERASE = (
        "erase",
        About(
            target=Target.KEY,
            label="Erase",
            summary="Erase what is left of a key",
            effect=(
                "The key's kept records and skipped dead letters are deleted for good, and cannot be "
                "replayed or redriven. The journal names the key by its digest from now on. Nothing that "
                "is to be delivered changes, nor does what Kafka has."
            ),
            question="Erase the key?",
        ),
    )

    PAUSE = (
        "pause",
        About(
            target=Target.TOPIC,
            label="Pause",
            summary="Have the records of a topic, or all, wait in the outbox",
            effect=(
                "Its records wait in the outbox from now on, and are delivered in their order once it is "
                "resumed, or the pause ends. Applications go on writing them. Other topics go on: a consumer "
                "of two topics sees them apart in time, and records of a key in other topics overtake those "
                "that wait. What is in flight is still delivered."
            ),
            question="Pause it?",
        ),
    )
    RESUME = (
        "resume",
        About(
            target=Target.TOPIC,
            label="Resume",
            summary="Deliver again what was paused",
            effect=(
                "What has waited is delivered, in its order, as fast as the lanes can. Records of other "
                "topics that were delivered meanwhile came before it."
            ),
        ),
    )

    ADD_PARTITIONS = (
        "add-partitions",
        About(
            target=Target.PARTITIONS,
            label="Add partitions",
            summary="Add partitions to a topic, and keep the order of keys",
            effect=(
                "The topic is paused: its records wait in the outbox, and other topics go on. Once nothing "
                "of it is in flight, and the groups named have committed all that was sent, partitions are "
                "added, and the topic is resumed. Most keys move to other partitions. Of a group that is not "
                "named, and of a reader without a group, nobody knows what it has read: it may read new "
                "records of a key before old ones. So may all, if others send to the topic. A consumer that "
                "starts at the end where it has no offset (auto.offset.reset=latest) skips what is sent to "
                "new partitions before it knows them. Partitions cannot be taken away."
            ),
            question="Add the partitions?",
        ),
    )

    @classmethod
    def of_letters(cls, status: str) -> list[Self]:
        """Returns what can be done to dead letters of a status."""
        return [each for each in cls if each.about.status == status]

    def effect(self, cluster: int | None = None) -> str:
        """Returns what it does to the order of records, in a few sentences, to be told before it is done."""
        return self.about.effect.format("another" if cluster is None else cluster)
