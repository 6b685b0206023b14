"""What an operator can do to an outbox, and what each of it does to the order of records."""

from enum import StrEnum


class Verb(StrEnum):
    """What an operator does; journals and programs rely on these names."""

    RETRY = "retry"
    SKIP = "skip"
    REDRIVE = "redrive"
    RAISE_FENCE = "raise-fence"
    FORGET = "forget"
    TAKE_OVER = "take-over"
    END_TAKEOVER = "end-takeover"
    REVEAL = "reveal"


_EFFECTS = {
    Verb.RETRY: (
        "The order of records is kept: of each key the failed record is tried first, and those behind it "
        "follow. A record that fails again is parked again, with its key."
    ),
    Verb.SKIP: (
        "The failed records are deleted from the outbox and not delivered: consumers see a gap. The "
        "records behind them flow, in their order. Each failed record is kept as a skipped dead letter, "
        "for as long as 'keepSkipped' says, and can be redriven."
    ),
    Verb.REDRIVE: (
        "The records are stashed again, behind all records that their keys have in the outbox now. So "
        "consumers see them later than records that were written after them: out of their original order."
    ),
    Verb.RAISE_FENCE: (
        "The present leader is fenced: from now on it cannot mark, purge or reset anything. It notices "
        "this at its next statement, and stops its lanes. Then the process that the election names, "
        "usually the same one, raises the token again and continues within a second or two. Nothing is "
        "lost and the order is kept; records in flight are published again, unless delivery is "
        "exactly-once."
    ),
    Verb.FORGET: (
        "All rows of these lanes are treated as unpublished: they are delivered in order, some perhaps "
        "for a second time. Nothing is lost. Use this only for lanes that refuse to start because the "
        "broker has no checkpoint of them."
    ),
    Verb.TAKE_OVER: (
        "This cluster takes the records of cluster {0} at once, whatever their age, until you end it. "
        "Stop the harvesters of cluster {0} first: those that run go on, and then each of its records is "
        "delivered twice, and consumers may see a repetition behind later records. The fence is raised, "
        "so that the present leader's lanes begin anew within a second or two."
    ),
    Verb.END_TAKEOVER: (
        "From now on this cluster takes records of cluster {0} only once they are old enough, also those "
        "that it has taken before and not delivered. The fence is raised, so that the present leader's "
        "lanes begin anew within a second or two."
    ),
    Verb.REVEAL: (
        "Shows the values and headers of the records, and changes nothing. The journal notes who has seen "
        "them."
    ),
}


def effect(verb: Verb, *, cluster: int | None = None) -> str:
    """Returns what a verb does to the order of records, in a few sentences, to be told before it is done.

    Args:
        verb: The verb.
        cluster: Of which cluster a takeover is; other verbs ignore it.
    """
    return _EFFECTS[verb].format("another" if cluster is None else cluster)
