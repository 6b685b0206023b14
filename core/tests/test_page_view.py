"""What the page shows, made of plain values."""

import re
from datetime import timedelta

import pytest
from outbox_api import Parked
from outbox_console.view.dead_letters import MOST_SHOWN, letter, noted, value
from outbox_console.view.graphs import HEIGHT, WIDTH, Sample, graph
from outbox_console.view.history import HistoryView, graphs
from outbox_console.view.overview import overview
from outbox_core.settings.logs import KeyNames
from outbox_core.status.health import Code
from outbox_core.status.history_events import HistoryEvent, HistoryEventCode
from outbox_core.status.minutes import Seen, Span
from outbox_core.status.model import overall, status_of, worst_first
from outbox_core.status.points import Point
from outbox_core.status.verdict import LastStatus, State, verdict

from .page_states import HOSTILE, NOW, entry, lane, snapshot
from .page_states import letter as dead_letter


def drawn(*samples: tuple[int, float | None]) -> str:
    """Draws figures of so many seconds ago."""
    found: list[Sample] = [(NOW - timedelta(seconds=ago), figure) for ago, figure in samples]
    return str(graph("x", "<X>", found, NOW, str, longest=timedelta(hours=1)).svg)


def lines(svg: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", line)]
        for line in re.findall(r'class="line" d="M([^"]*)"', svg)
    ]


def test_a_graph_is_as_high_as_its_greatest_figure_and_ends_now():
    [line] = lines(drawn((3600, 0.0), (1800, 50.0), (0, 100.0)))
    assert line == [(0, HEIGHT - 1), (WIDTH / 2, (HEIGHT - 1 + 2) / 2), (WIDTH, 2)]


def test_what_is_not_known_is_a_gap_and_never_a_line():
    svg = drawn((300, 1.0), (290, 1.0), (280, None), (270, 3.0), (260, None))
    assert [len(line) for line in lines(svg)] == [2, 2]  # the second is a dot: from a place to itself
    assert "now not known, at most 3.0; not known at times" in svg
    assert "&lt;X&gt;" in svg


@pytest.mark.parametrize("samples", [(), ((30, None),), ((30, 0.0), (20, 0.0))])
def test_a_graph_of_little(samples: tuple[tuple[int, float | None], ...]):
    svg = drawn(*samples)
    assert "nan" not in svg
    assert all(y == HEIGHT - 1 for line in lines(svg) for _, y in line)


def test_what_is_shown_stays_the_same_while_nothing_happens():
    points = [Point(NOW - timedelta(minutes=4), 1, 1.0, 1.0), Point(NOW, 2, None, 3.0)]
    early, late = NOW + timedelta(seconds=1), NOW + timedelta(seconds=9)
    assert graphs(points, early) == graphs(points, late)
    assert graphs(points, early) != graphs(points, NOW + timedelta(seconds=11))
    [soon, later, silent] = [
        status_of("outbox", LastStatus(snapshot(lane(age=age)), at), at, steady=True).lanes[0].heartbeat
        for age, at in ((0.5, early), (4.9, late), (75.0, late))
    ]
    assert soon == later == "within 5s"
    assert silent == "1m20s"


def test_the_hour_begins_with_the_process():
    young = [Point(NOW - timedelta(minutes=4), 1, 1.0, 1.0), Point(NOW, 2, None, 3.0)]
    assert HistoryView.of(Seen(young, []), Span.HOUR, NOW, "").known_since == young[0].at
    full = [Point(NOW - timedelta(minutes=60), 1), *young]
    assert HistoryView.of(Seen(full, []), Span.HOUR, NOW, "").known_since is None
    assert HistoryView.of(Seen(full, []), Span.DAY, NOW, "").known_since == full[0].at
    backlog, oldest, rate, *_ = graphs(young, NOW)
    assert (backlog.now, oldest.now, rate.now) == ("2", "0s", "3")
    assert backlog.begins == NOW - timedelta(minutes=10)


def test_the_newest_happenings_come_first():
    happened = [HistoryEvent(NOW, HistoryEventCode.KEYS_PARKED, str(number)) for number in range(30)]
    shown = HistoryView.of(Seen([], happened), Span.HOUR, NOW, "").events
    assert [each.text for each in shown] == [str(number) for number in range(29, 9, -1)]


def test_a_day_is_drawn_with_few_points_and_its_peaks():
    points = [
        Point(NOW - timedelta(minutes=number), number % 100, p99=0.004) for number in range(1440, 0, -1)
    ]
    backlog, *_, p99, failed = graphs(points, NOW, Span.DAY)
    [line] = lines(str(backlog.svg))
    assert len(line) <= 290
    assert (backlog.most, p99.now, failed.now) == ("99", "4.0 ms", "–")  # noqa: RUF001 - a dash
    assert backlog.begins == NOW - timedelta(days=1)
    assert "over the last day" in str(backlog.svg)
    assert "over the last 15 minutes" in str(graphs(points, NOW, Span.QUARTER)[0].svg)


def test_the_verdict_has_no_figures_that_change_all_the_time():
    texts = {
        verdict(LastStatus(snapshot(lane(0), lane(1, age=age), oldest=age, parked=Parked(1, age)), NOW)).said
        for age in (61.0, 62.0, 600.0)
    }
    assert texts == {"3 problems: silent lane, old records, parked keys."}


def test_the_worst_outbox_is_the_first():
    sick = snapshot(lane(0), lane(1, age=60.0))
    worse = snapshot(lane(0), lane(1, age=60.0), parked=Parked(1, 1.0))
    known = {
        "a": LastStatus(snapshot(), NOW),
        "b": LastStatus(sick, NOW),
        "c": LastStatus(worse, NOW),
        "d": LastStatus(sick, NOW, "refused", NOW),
        "e": LastStatus(),
    }
    found = worst_first([status_of(title, each, NOW, steady=True) for title, each in known.items()])
    assert [each.title for each in found] == ["d", "e", "c", "b", "a"]
    assert overall(found).said == "3 of 5 outboxes need attention."
    assert overall(found[-1:]).state is State.WELL
    assert overall([]).state is State.UNKNOWN
    assert [each.code for each in found[0].verdict.reasons] == [Code.DATABASE_UNREACHABLE]


def test_one_cause_is_one_line_and_outboxes_are_sorted_as_people_count():
    away, sick = LastStatus(None, None, "refused", NOW), LastStatus(snapshot(parked=Parked(1, 1.0)), NOW)
    known = {f"tenant_{number}": away for number in (1, 2, 3, 10)}
    known |= {"tenant_4": sick, "other_1": away, "tenant_11": LastStatus(snapshot(), NOW)}
    known |= {"tenant_5": LastStatus(snapshot(), NOW)}
    outboxes = [status_of(title, each, NOW, steady=True) for title, each in known.items()]
    databases = {title: title.partition("_")[0] for title in known}
    found = overview(outboxes, databases)
    [fold] = found.folds
    assert fold.said == "tenant: no answer: 4 outboxes"
    assert [each.title for each in fold.outboxes] == ["tenant_1", "tenant_2", "tenant_3", "tenant_10"]
    assert [each.title for each in found.sick] == ["other_1", "tenant_4"]
    assert [each.title for each in found.well["tenant"]] == ["tenant_5", "tenant_11"]
    assert (found.shown, found.several, found.totals.well) == (8, True, "2 of 8")
    assert (found.totals.backlog, found.totals.rate, found.totals.parked) == ("36", "720", "1")
    fewer = overview(outboxes, databases, "Tenant_1", problems=True)
    assert [each.title for each in fewer.sick] == ["tenant_1", "tenant_10"]
    assert (fewer.well, fewer.folds, fewer.shown, fewer.totals) == ({}, [], 2, found.totals)


def test_values_are_cut_and_bytes_are_shown_in_three_ways():
    assert value(None) is None
    text = value("ä\u202e\n" + "x" * MOST_SHOWN)
    assert text is not None
    assert text.text.startswith("ä\\u202e\nx")
    assert (text.cut, text.hex, text.size) == (True, "", "4,099 characters")
    data = value(b"\xffA\n")
    assert data is not None
    assert (data.text, data.hex, data.base64) == ("\ufffdA\n", "ff 41 0a", "/0EK")
    assert (data.cut, data.size) == (False, "3 bytes")


def test_hashed_keys_have_both_names():
    names = KeyNames("a secret of the test")
    found = letter(dead_letter(key="order-1"), names)
    assert (found.key, found.in_logs) == ("order-1", names.of("order-1"))
    assert letter(dead_letter(key=HOSTILE), KeyNames()).in_logs == ""


def test_long_subjects_of_the_journal_are_folded():
    assert noted(entry("short")).rest == ""
    long = noted(entry("x" * 300, outcome=None))
    assert (len(long.short), len(long.rest), long.outcome) == (81, 300, "")
