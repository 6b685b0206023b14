"""What electors do when something fails: a dead or frozen leader is replaced, a lonely one steps down.

Bounds of time are generous, as machines of tests are busy; what was measured is recorded in the report.
"""

from __future__ import annotations

import time

from outbox_api.election import elapsed

from outbox_testkit.conformance.contender import ServiceUnderTest
from outbox_testkit.conformance.electing import ElectorSuite, Measure
from outbox_testkit.conformance.election import Election

_SLACK = 5.0
"""Seconds that a busy machine may take longer."""


class FailoverConformance(ElectorSuite):
    """Leaders die, freeze, and lose their service."""

    def test_a_killed_leader_is_replaced_whoever_joins_meanwhile(
        self, election: Election, measured: Measure
    ) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        died = leader.kill()
        time.sleep(election.session / 3)
        election.enter()
        successor = election.hear("acquired", 3 * election.session + _SLACK)
        measured("takeover of a killed leader, with a replacement", successor.at - died)
        assert election.hear_all(1.0) == []

    def test_a_leader_that_was_frozen_briefly_leads_on(self, election: Election) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        leader.freeze()
        time.sleep(election.session / 4)
        leader.thaw()
        assert election.hear_all(1.5 * election.session) == []

    def test_a_leader_that_was_frozen_for_long_stands_by(self, election: Election, measured: Measure) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        frozen = leader.freeze()
        successor = election.hear("acquired", 2 * election.session + _SLACK)
        assert successor.contender is not leader
        measured("takeover of a frozen leader", successor.at - frozen)
        time.sleep(max(0.0, 2 * election.session - (elapsed() - frozen)))
        woken = leader.thaw()
        fenced = election.hear("fenced", 30, leader)
        measured("a frozen leader notices", fenced.at - woken)
        assert election.hear_all(1.0) == []
        successor.contender.stop()
        assert election.hear("acquired", 30).contender is leader

    def test_an_outage_of_the_service_ends_leadership_in_time_and_one_leads_afterwards(
        self, election: Election, service: ServiceUnderTest, measured: Measure
    ) -> None:
        election.enter(2)
        leader = election.hear("acquired", 60).contender
        began = elapsed()
        service.stop()
        try:
            fenced = election.hear("fenced", election.session + _SLACK, leader)
            measured("a leader without its service steps down", fenced.at - began)
            assert election.hear_all(election.session / 2) == []
        finally:
            service.start()
        serving = elapsed()
        successor = election.hear("acquired", 3 * election.session + _SLACK)
        measured("leadership after the service is back", successor.at - serving)
        assert election.hear_all(1.0) == []
        successor.contender.stop()
        assert election.hear("acquired", 30).contender is not successor.contender

    def test_a_leader_that_alone_is_cut_off_steps_down_before_another_leads(
        self, election: Election, service: ServiceUnderTest, measured: Measure
    ) -> None:
        [leader] = election.enter(options=service.options)
        assert election.hear("acquired", 60).contender is leader
        election.enter()
        began = elapsed()
        service.proxy.silence()
        try:
            fenced = election.hear("fenced", election.session + _SLACK, leader)
            successor = election.hear("acquired", 2 * election.session + _SLACK)
            measured("a leader that is cut off steps down", fenced.at - began)
            measured("takeover of a leader that is cut off", successor.at - began)
        finally:
            service.proxy.speak()
        assert election.hear_all(election.session / 2) == []
        successor.contender.stop()
        assert election.hear("acquired", 30).contender is leader
