"""The steps of a demonstration, from starting the servers to the audit."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import TypeVar

from outbox_api import OutboxError
from outbox_audit import Audit, Ledger, Result, read_ledger, read_topic

from outbox_demo.application import Application
from outbox_demo.display import Display
from outbox_demo.environment import Environment, Leader
from outbox_demo.options import HARVESTERS, SESSION_SECONDS, TOPIC, DemoOptions
from outbox_demo.outcome import Outcome, Takeover
from outbox_demo.reader import TopicReader
from outbox_demo.snapshot import Role, Snapshot

_TICK_SECONDS = 0.2
_START_SECONDS = 120.0
_TAKEOVER_SECONDS = SESSION_SECONDS + 30.0
_EMPTY_SECONDS = 60.0
"""How long the outbox may take to become empty after the application has stopped."""
_ARRIVE_SECONDS = 5.0
"""How long the last messages may take to reach the consumer."""

T = TypeVar("T")


def run_demo(options: DemoOptions, environment: Environment, display: Display) -> Outcome:
    """Runs a whole demonstration.

    Args:
        options: The options.
        environment: Servers and harvesters, not started yet.
        display: Shows the progress.

    Raises:
        OutboxError: A harvester, the application or the consumer failed, or a step timed out.
    """
    _set_up(options, environment, display)
    with Ledger(environment.ledger) as ledger, ExitStack() as running:
        application = Application(environment.dsn, ledger, rate=options.rate, keys=options.keys)
        reader = TopicReader(environment.bootstrap)
        for part in (reader, application):
            part.start()
            running.callback(part.stop)
        takeover, left = _Run(options, environment, display, application, reader).run()
    display.wait_for("auditing: what was committed against what is in the topic")
    return Outcome(
        audit=_audit(environment),
        takeover=takeover,
        rolled_back=application.counts["rolled back"],
        late=application.counts["late"],
        mean_rate=reader.mean_rate(),
        highest_rate=reader.highest_rate(),
        left=left,
    )


def _set_up(options: DemoOptions, environment: Environment, display: Display) -> None:
    display.wait_for("starting PostgreSQL and Kafka")
    environment.open()
    display.log("PostgreSQL and Kafka serve; outbox and topic are created")
    where = "on Spark, each with a JVM of its own" if options.engine == "spark" else "in threads"
    environment.start_harvesters()
    display.wait_for(f"starting two harvesters; their lanes run {where}")
    deadline = monotonic() + _START_SECONDS
    while (leader := environment.leader()) is None or environment.candidates() < len(HARVESTERS):
        environment.check()
        if monotonic() > deadline:
            raise OutboxError(f"no leader and standby after {_START_SECONDS:g} s.\n{environment.log_tails()}")
        time.sleep(_TICK_SECONDS)
    display.log(f"{leader.name} leads with fence token {leader.token}; the other stands by, warmed up")


def _audit(environment: Environment) -> Result:
    audit = Audit()
    for record in read_ledger(environment.ledger):
        audit.committed(*record)
    for message in read_topic({"bootstrap.servers": environment.bootstrap}, TOPIC):
        audit.arrived(*message)
    return audit.result()


class _Run:
    """The steps in which records flow: write, kill the leader, wait for the successor, drain."""

    def __init__(
        self,
        options: DemoOptions,
        environment: Environment,
        display: Display,
        application: Application,
        reader: TopicReader,
    ) -> None:
        self._options = options
        self._environment = environment
        self._display = display
        self._application = application
        self._reader = reader
        self._leader = environment.leader()
        self._backlog = 0

    def run(self) -> tuple[Takeover, int]:
        """Returns the times of the takeover, and the number of records left in the outbox at the end."""
        began = monotonic()
        self._display.log("the application writes orders; some transactions roll back, some commit late")
        self._monitor(lambda: monotonic() >= began + self._options.kill_at or None)
        takeover = self._kill_leader()
        self._monitor(lambda: monotonic() >= began + self._options.seconds or None)
        self._application.stop()
        self._display.log("the application has finished")
        if self._monitor(lambda: self._backlog == 0 or None, _EMPTY_SECONDS):
            self._display.log("the outbox is empty")
        arrived = lambda: self._reader.delivered >= self._application.counts["committed"] or None  # noqa: E731 - read once, below
        self._monitor(arrived, _ARRIVE_SECONDS)
        return takeover, self._backlog

    def _kill_leader(self) -> Takeover:
        before = self._leader
        if before is None:
            raise OutboxError("nobody leads any more")
        self._reader.reset_arrivals()
        killed_at, killed_on = monotonic(), time.time()
        self._environment.harvesters[before.name].kill()
        self._display.log(f"{before.name} is killed with SIGKILL, in the middle of its work")
        after = self._require(lambda: self._successor(before), "no other harvester took over")
        until_leader = after.since.timestamp() - killed_on
        self._display.log(
            f"{after.name} leads with fence token {after.token}, {until_leader:.1f} s after the kill"
        )
        # What the old leader had sent was stamped before the new one raised the token.
        arrived_at = self._require(
            lambda: self._reader.first_since(after.since.timestamp()), "the successor delivered nothing"
        )
        self._display.log(f"its first record arrived {arrived_at - killed_at:.1f} s after the kill")
        return Takeover(before.name, after.name, until_leader, arrived_at - killed_at)

    def _successor(self, before: Leader) -> Leader | None:
        return self._leader if self._leader and self._leader.token > before.token else None

    def _require(self, done: Callable[[], T | None], failure: str) -> T:
        """Monitors the run until ``done`` returns something; returns it.

        Raises:
            OutboxError: It returned nothing in time.
        """
        answer = self._monitor(done, _TAKEOVER_SECONDS)
        if answer is None:
            raise OutboxError(f"{failure} within {_TAKEOVER_SECONDS:g} s.\n{self._environment.log_tails()}")
        return answer

    def _monitor(self, done: Callable[[], T | None], seconds: float = float("inf")) -> T | None:
        """Updates the display until ``done`` returns something, or the seconds are over; returns it."""
        deadline = monotonic() + seconds
        while True:
            self._environment.check()
            self._application.check()
            self._reader.check()
            self._leader = self._environment.leader()
            self._backlog = self._environment.backlog()
            self._display.show(self._snapshot())
            if (answer := done()) is not None or monotonic() > deadline:
                return answer
            time.sleep(_TICK_SECONDS)

    def _snapshot(self) -> Snapshot:
        counts = self._application.counts
        return Snapshot(
            committed=counts["committed"],
            late=counts["late"],
            rolled_back=counts["rolled back"],
            delivered=self._reader.delivered,
            backlog=self._backlog,
            rate=self._reader.rate(),
            token=self._leader.token if self._leader else 0,
            roles={name: self._role(name) for name in self._environment.harvesters},
        )

    def _role(self, name: str) -> Role:
        if self._environment.harvesters[name].killed:
            return Role.KILLED
        return Role.LEADER if self._leader and self._leader.name == name else Role.STANDBY
