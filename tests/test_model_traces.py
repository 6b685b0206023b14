"""Traces of real runs against the model: recorded ones are histories of it, and changed ones are not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from .faults.fault import EXACTLY_ONCE
from .faults.rounds import FAULTS, run_batch
from .faults.site import Site
from .model.actions import ACTIONS, PREVENTED
from .model.followed import UNSEEN, follow, table
from .model.replay import NotOfTheModel, Replay
from .model.traces import NEVER, Asked, Projection, keys_of, of_lanes, read

RECORDED = Path(__file__).parent / "model" / "recorded"
KILLED = sorted((RECORDED / "killed").iterdir())
"""A leader is killed as its first lane opens its producer; another one succeeds it."""
IN_DOUBT = sorted((RECORDED / "in_doubt").iterdir())
"""A request to commit was answered as it was sent again: the lane needs a new producer."""


class Trace:
    """A recorded trace, and the key of which most rows were published."""

    def __init__(self, files: Sequence[Path]) -> None:
        calls = read(files)
        [lane] = {call.lane for call in calls if call.lane is not None}
        self.calls = of_lanes(calls, {lane})
        [(self.key, _)] = keys_of(calls, lane).most_common(1)
        self._seen = Projection(self.calls, self.key)

    def all(self, do: str) -> list[Asked]:
        """Returns the calls of a kind."""
        return [call for call in self.calls if call.do == do]

    def published(self) -> list[Asked]:
        """Returns the calls to publish rows of the key."""
        return [call for call in self.all("publish") if self._seen.rows(call.asks["rows"])]

    def selected(self) -> list[Asked]:
        """Returns the calls that selected rows of the key."""
        return [call for call in self.all("advance") if self._seen.rows([row for row, _ in _rows(call)])]

    def purged(self, rows: Asked) -> Asked:
        """Returns the call that purges what another has published."""
        ids = self._seen.rows(rows.asks["rows"])
        return next(call for call in self.all("advance") if self._seen.of(call.asks["finished"]) & {*ids})

    def within(self, publish: Asked) -> list[Asked]:
        """Returns a call to publish, and its parts."""
        return [
            call
            for call in self.calls
            if call.who == publish.who
            and call.do in ("publish", "begin", "commit")
            and publish.begins <= call.begins
            and call.ends <= publish.ends
        ]

    def without(self, *calls: Asked) -> list[Asked]:
        """Returns the trace without some calls."""
        return [call for call in self.calls if call not in calls]

    def changed(self, call: Asked, **changes: object) -> list[Asked]:
        """Returns the trace with another call in the place of one."""
        return sorted([*self.without(call), replace(call, **changes)], key=lambda each: each.begins)  # type: ignore[arg-type]

    def follow(self, calls: Sequence[Asked]) -> None:
        Replay(calls, self.key).run()


def _rows(call: Asked) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = (call.answer or {}).get("rows", [])
    return found


@pytest.fixture(scope="module")
def killed() -> Trace:
    return Trace(KILLED)


@pytest.fixture(scope="module")
def in_doubt() -> Trace:
    return Trace(IN_DOUBT)


def test_a_leader_is_killed_and_succeeded():
    [first, *_] = found = list(follow(KILLED))
    assert not any(each.wrong for each in found), first.wrong
    actions = {name for each in found for name in (action for _, action in each.steps)}
    assert actions >= {"crash", "is elected", "reads the checkpoint", "commits", "purges and selects"}
    assert all(
        at <= last for each in found for (at, _), (last, _) in zip(each.steps, each.steps[1:], strict=False)
    )


def test_a_lane_whose_commit_was_in_doubt_starts_anew():
    found = list(follow(IN_DOUBT))
    assert not any(each.wrong for each in found), found[0].wrong
    actions = [action for _, action in found[0].steps]
    assert "needs a new producer" in actions
    assert "end sent twice" in actions
    assert "reads rows of the attempt" in actions


def test_a_lane_whose_abort_was_in_doubt_sends_nothing_more(in_doubt: Trace):
    [commit] = [call for call in in_doubt.all("commit") if call.spent]
    publish = next(call for call in in_doubt.all("publish") if commit in in_doubt.within(call))
    last = commit.ends + 2e-7
    fails = {"fails": "DriverError", "says": "was not answered at once", "lost": False}
    calls = [call for call in in_doubt.calls if call.begins < commit.ends and call not in (commit, publish)]
    calls += [
        replace(publish, ends=last, answer=fails),
        replace(commit, do="abort"),
        replace(commit, do="begin", begins=last - 1e-7, ends=last, answer=fails),
    ]
    calls.sort(key=lambda each: each.begins)
    in_doubt.follow(calls)
    with pytest.raises(NotOfTheModel):
        in_doubt.follow([replace(call, answer={}) if call.do == "abort" else call for call in calls])


def again(trace: Trace, publish: Asked) -> list[Asked]:
    """Returns a trace in which a batch is published once more after it was purged."""
    begin = trace.purged(publish).ends
    calls = sorted(trace.within(publish), key=lambda call: call.begins)
    copies = [
        replace(call, begins=begin + 1e-7 * (1 + at), ends=begin + 1e-7 * (9 - at))
        for at, call in enumerate(calls)
    ]
    return sorted([*trace.calls, *copies], key=lambda call: call.begins)


def exchanged(trace: Trace) -> list[Asked]:
    """Returns a trace in which two batches are published in the other order."""
    one, other, *_ = trace.published()
    calls = [call for call in trace.calls if call not in (one, other)]
    both = [replace(one, asks=other.asks), replace(other, asks=one.asks)]
    return sorted([*calls, *both], key=lambda call: call.begins)


def committed_twice(trace: Trace) -> list[Asked]:
    publish = trace.published()[1]
    [commit] = [call for call in trace.within(publish) if call.do == "commit"]
    more = replace(commit, begins=publish.ends - 2e-7, ends=publish.ends - 1e-7)
    return sorted([*trace.calls, more], key=lambda call: call.begins)


def purged_early(trace: Trace) -> list[Asked]:
    publish = trace.published()[1]
    purge = trace.purged(publish)
    return trace.changed(purge, begins=publish.begins - 2e-7, ends=publish.begins - 1e-7)


def selected_again(trace: Trace) -> list[Asked]:
    first, second, *_ = trace.selected()
    return trace.changed(second, answer=first.answer)


def opened_late(trace: Trace) -> list[Asked]:
    """Returns a trace in which the first leader opens its producer after the second, which goes on."""
    [old] = [call for call in trace.all("open") if call.ends == NEVER]
    at = trace.all("note")[-1].ends
    return trace.changed(old, begins=at + 1e-7, ends=at + 2e-7, answer={"spent": False})


CHANGES: dict[str, Callable[[Trace], list[Asked]]] = {
    "a batch is not published": lambda trace: trace.without(*trace.within(trace.published()[1])),
    "a batch is not committed": lambda trace: trace.without(
        *[call for call in trace.within(trace.published()[1]) if call.do == "commit"]
    ),
    "a batch is committed twice": committed_twice,
    "a batch is published again": lambda trace: again(trace, trace.published()[0]),
    "two batches are exchanged": exchanged,
    "a batch is not purged": lambda trace: trace.without(trace.purged(trace.published()[0])),
    "a batch is purged before it is published": purged_early,
    "a batch is selected again": selected_again,
    "a checkpoint lists nothing": lambda trace: trace.changed(
        trace.published()[1], asks={**trace.published()[1].asks, "attempted": []}
    ),
    "the lane does not enter": lambda trace: trace.without(trace.all("enter")[-1]),
    "the note is not read": lambda trace: trace.without(trace.all("recall")[-1]),
    "no producer is opened": lambda trace: trace.without(trace.all("open")[-1]),
    "the checkpoint is not read": lambda trace: trace.without(trace.all("look")[-1]),
    "the former leader fences its successor, which goes on": opened_late,
    "nothing is noted": lambda trace: trace.without(trace.all("note")[-1]),
    "the fence is not raised": lambda trace: trace.without(trace.all("bump")[-1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_trace_is_no_history_of_the_model(killed, change):
    killed.follow(killed.calls)
    with pytest.raises(NotOfTheModel):
        killed.follow(CHANGES[change](killed))


def test_no_lane_goes_on_with_a_producer_that_has_ended(in_doubt):
    [failed] = [call for call in in_doubt.all("publish") if call.failed]
    in_doubt.follow(in_doubt.calls)
    goes_on = in_doubt.changed(failed, answer={"failed": [], "spent": False})
    with pytest.raises(NotOfTheModel):
        in_doubt.follow(goes_on)


def test_a_former_leader_purges_nothing(killed):
    """The fence refuses it: an answer to a call of the first leader, after the second was elected."""
    [old, *_] = [call for call in killed.calls if call.do == "enter"]
    late = replace(
        old, begins=killed.calls[-1].begins + 1, ends=killed.calls[-1].begins + 2, answer={"epoch": 2}
    )
    with pytest.raises(NotOfTheModel):
        killed.follow([*killed.calls, late])


def test_a_call_without_an_answer_is_read(killed):
    assert [call.do for call in killed.calls if call.ends == NEVER] == ["open", "publish"]


def test_what_a_killed_process_has_not_written_to_its_end_is_left_out(tmp_path):
    file = tmp_path / "a1.trace"
    file.write_text(KILLED[0].read_text() + '{"t":1,"pid":')
    assert len(read([file])) == len(read(KILLED[:1]))


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_what_harvesters_do_is_a_history_of_the_model(tmp_path):
    by_name = {fault.name: fault for fault in FAULTS}
    told: list[str] = []
    with Site(tmp_path, "inline", random.Random(3), delivery=EXACTLY_ONCE, harvesters=2) as site:
        rounds = run_batch(site, [by_name["lost-commits"], by_name["kill-committing"]], told.append)
    assert not any(each.wrong for each in rounds), "\n".join(told)
    lost, killed = (each.actions for each in rounds)
    assert killed.keys() >= {"crash", "is elected", "reads rows of the attempt"}
    assert lost["needs a new producer"]
    assert min(lost["commits"], killed["commits"])


def test_the_table_tells_of_all_actions():
    assert PREVENTED <= UNSEEN.keys() <= ACTIONS.keys()
    told = table({"commits": ["kill-leader"]}).splitlines()
    assert len(told) == 1 + len(ACTIONS)
    assert f"{'commits':30} kill-leader" in told
    assert f"{'aborts':30} NOT" in told
