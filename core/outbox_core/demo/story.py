"""The acts of a demonstration, from starting the servers to the verdict."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import TypeVar

from outbox_sdk import OutboxError

from outbox_core.audit import Audit, Ledger, Result, read_ledger, read_topic
from outbox_core.demo.application import Application
from outbox_core.demo.consumer import Downstream
from outbox_core.demo.scene import Outcome, Role, Scene, Takeover
from outbox_core.demo.screen import Screen
from outbox_core.demo.script import HARVESTERS, SESSION_SECONDS, TOPIC, Script
from outbox_core.demo.stage import Office, Stage

_TICK_SECONDS = 0.2
_START_SECONDS = 120.0
_TAKEOVER_SECONDS = SESSION_SECONDS + 30.0
_EMPTY_SECONDS = 60.0
"""How long the outbox may take to become empty once nobody writes any more."""
_ARRIVE_SECONDS = 5.0
"""How long the consumer may take to see the last of it."""

T = TypeVar("T")


def play(script: Script, stage: Stage, screen: Screen) -> Outcome:
    """Plays a whole demonstration.

    Args:
        script: How it goes.
        stage: Where it is played; still as it was made.
        screen: Where it is shown.

    Raises:
        OutboxError: Something ended that should not, or did not happen in time.
    """
    _set_up(script, stage, screen)
    with Ledger(stage.ledger) as ledger, ExitStack() as running:
        application = Application(stage.dsn, ledger, rate=script.rate, keys=script.keys)
        downstream = Downstream(stage.bootstrap)
        for part in (downstream, application):
            part.start()
            running.callback(part.stop)
        takeover, left = _Action(script, stage, screen, application, downstream).run()
    screen.wait_for("auditing: what was committed against what is in the topic")
    return Outcome(
        audit=_audit(stage),
        takeover=takeover,
        rolled_back=application.counts["rolled back"],
        late=application.counts["late"],
        mean_rate=downstream.mean_rate(),
        highest_rate=downstream.highest_rate(),
        left=left,
    )


def _set_up(script: Script, stage: Stage, screen: Screen) -> None:
    screen.wait_for("starting PostgreSQL and Kafka")
    stage.open()
    screen.say("PostgreSQL and Kafka serve; outbox and topic are created")
    where = "on Spark, each with a JVM of its own" if script.engine == "spark" else "in threads"
    stage.start_harvesters()
    screen.wait_for(f"starting two harvesters; their lanes run {where}")
    deadline = monotonic() + _START_SECONDS
    while (office := stage.office()) is None or stage.candidates() < len(HARVESTERS):
        stage.check()
        if monotonic() > deadline:
            raise OutboxError(f"no leader and standby after {_START_SECONDS:g} s.\n{stage.log_tails()}")
        time.sleep(_TICK_SECONDS)
    screen.say(f"{office.holder} leads with fence token {office.token}; the other stands by, warmed up")


def _audit(stage: Stage) -> Result:
    audit = Audit()
    for record in read_ledger(stage.ledger):
        audit.committed(*record)
    for message in read_topic({"bootstrap.servers": stage.bootstrap}, TOPIC):
        audit.arrived(*message)
    return audit.result()


class _Action:
    """The part in which records flow."""

    def __init__(
        self, script: Script, stage: Stage, screen: Screen, application: Application, downstream: Downstream
    ) -> None:
        self._script = script
        self._stage = stage
        self._screen = screen
        self._application = application
        self._downstream = downstream
        self._office = stage.office()
        self._backlog = 0

    def run(self) -> tuple[Takeover, int]:
        """Returns how the takeover went, and how many records were left in the outbox at the end."""
        began = monotonic()
        self._screen.say("the application writes orders; some transactions roll back, some commit late")
        self._follow(lambda: monotonic() >= began + self._script.kill_at or None)
        takeover = self._kill_leader()
        self._follow(lambda: monotonic() >= began + self._script.seconds or None)
        self._application.stop()
        self._screen.say("the application has finished")
        if self._follow(lambda: self._backlog == 0 or None, _EMPTY_SECONDS):
            self._screen.say("the outbox is empty")
        arrived = lambda: self._downstream.delivered >= self._application.counts["committed"] or None  # noqa: E731 - read once, below
        self._follow(arrived, _ARRIVE_SECONDS)
        return takeover, self._backlog

    def _kill_leader(self) -> Takeover:
        before = self._office
        if before is None:
            raise OutboxError("nobody leads any more")
        self._downstream.forget()
        killed_at, killed_on = monotonic(), time.time()
        self._stage.harvesters[before.holder].kill()
        self._screen.say(f"{before.holder} is killed with SIGKILL, in the middle of its work")
        after = self._expect(lambda: self._successor(before), "no other harvester took over")
        until_leader = after.since.timestamp() - killed_on
        self._screen.say(
            f"{after.holder} leads with fence token {after.token}, {until_leader:.1f} s after the kill"
        )
        # What the old leader had sent was stamped before the new one raised the token.
        arrived_at = self._expect(
            lambda: self._downstream.first_since(after.since.timestamp()), "the successor delivered nothing"
        )
        self._screen.say(f"its first record arrived {arrived_at - killed_at:.1f} s after the kill")
        return Takeover(before.holder, after.holder, until_leader, arrived_at - killed_at)

    def _successor(self, before: Office) -> Office | None:
        return self._office if self._office and self._office.token > before.token else None

    def _expect(self, done: Callable[[], T | None], failure: str) -> T:
        """Follows what happens until ``done`` answers.

        Raises:
            OutboxError: It did not in time.
        """
        answer = self._follow(done, _TAKEOVER_SECONDS)
        if answer is None:
            raise OutboxError(f"{failure} within {_TAKEOVER_SECONDS:g} s.\n{self._stage.log_tails()}")
        return answer

    def _follow(self, done: Callable[[], T | None], seconds: float = float("inf")) -> T | None:
        """Shows what happens until ``done`` answers, for some seconds at most; returns its answer."""
        deadline = monotonic() + seconds
        while True:
            self._stage.check()
            self._application.check()
            self._downstream.check()
            self._office = self._stage.office()
            self._backlog = self._stage.backlog()
            self._screen.show(self._scene())
            if (answer := done()) is not None or monotonic() > deadline:
                return answer
            time.sleep(_TICK_SECONDS)

    def _scene(self) -> Scene:
        counts = self._application.counts
        return Scene(
            committed=counts["committed"],
            late=counts["late"],
            rolled_back=counts["rolled back"],
            delivered=self._downstream.delivered,
            backlog=self._backlog,
            rate=self._downstream.rate(),
            token=self._office.token if self._office else 0,
            roles={name: self._role(name) for name in self._stage.harvesters},
        )

    def _role(self, name: str) -> Role:
        if self._stage.harvesters[name].killed:
            return Role.KILLED
        return Role.LEADER if self._office and self._office.holder == name else Role.STANDBY
