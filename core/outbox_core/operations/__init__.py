"""What an operator does to an outbox, and how it is noted: the same for commands and for pages.

Each action is noted in the outbox's journal before it is done, and its outcome afterwards. An action that
cannot be noted is refused before anything is done. Every function connects, does its work and disconnects;
it may be called on any thread, and beside harvesters. All raise :class:`outbox_api.OutboxError` with a
message that names the cure.
"""

from outbox_core.operations.dead_letters import Changed, change, letters, reveal, rows_now, waiting
from outbox_core.operations.dispatch import Arguments, Done, perform
from outbox_core.operations.erasing import KeyParked, Receipt, check_erasure, erase
from outbox_core.operations.erasing import look as look_for_key
from outbox_core.operations.fence import Forgotten, Raised, forget, raise_fence
from outbox_core.operations.journalled import UNCERTAIN, Operator, entries, entries_of
from outbox_core.operations.kept import Choice, kept_days, kept_record, kept_records, reveal_kept
from outbox_core.operations.letter_filter import LetterFilter
from outbox_core.operations.pausing import (
    Effect,
    PauseChanged,
    await_effect,
    pause,
    resume,
    seconds_until,
    topics_waiting,
)
from outbox_core.operations.reason import LONGEST_REASON, ReasonTooLong, check_reason
from outbox_core.operations.repartitioning import Plan, Watch, Wish, add_partitions, plan_partitions
from outbox_core.operations.replaying import give_up, list_replays, prepare_replay, replay
from outbox_core.operations.replays import GivenUp, Pace, Prepared, Replayed, Wanted
from outbox_core.operations.takeovers import (
    TakeoverChanged,
    UnknownCluster,
    change_takeover,
    check_cluster,
)
from outbox_core.operations.verbs import Target, Verb
from outbox_core.operations.waits import (
    Waiting,
    WaitingState,
    WhatWaits,
    key_as_data,
    rows_of_key,
    what_waits,
)

__all__ = [
    "LONGEST_REASON",
    "UNCERTAIN",
    "Arguments",
    "Changed",
    "Choice",
    "Done",
    "Effect",
    "Forgotten",
    "GivenUp",
    "KeyParked",
    "LetterFilter",
    "Operator",
    "Pace",
    "PauseChanged",
    "Plan",
    "Prepared",
    "Raised",
    "ReasonTooLong",
    "Receipt",
    "Replayed",
    "TakeoverChanged",
    "Target",
    "UnknownCluster",
    "Verb",
    "Waiting",
    "WaitingState",
    "Wanted",
    "Watch",
    "WhatWaits",
    "Wish",
    "add_partitions",
    "await_effect",
    "change",
    "change_takeover",
    "check_cluster",
    "check_erasure",
    "check_reason",
    "entries",
    "entries_of",
    "erase",
    "forget",
    "give_up",
    "kept_days",
    "kept_record",
    "kept_records",
    "key_as_data",
    "letters",
    "list_replays",
    "look_for_key",
    "pause",
    "perform",
    "plan_partitions",
    "prepare_replay",
    "raise_fence",
    "replay",
    "resume",
    "reveal",
    "reveal_kept",
    "rows_now",
    "rows_of_key",
    "seconds_until",
    "topics_waiting",
    "waiting",
    "what_waits",
]
