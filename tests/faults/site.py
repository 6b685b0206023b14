"""The site of faults: servers behind proxies, competing harvesters, and a shop that sells."""

from __future__ import annotations

import itertools
import json
import os
import random
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import ConsumerGroupState, KafkaException
from outbox_api import LaneStatus
from outbox_servers.services import KafkaBroker, KafkaCluster

from .. import events  # noqa: TID252 - pytest gives tests no absolute name
from ..databases import KEPT_SECONDS  # noqa: TID252 - pytest gives tests no absolute name
from ..harvesters import Fleet, Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from ..shop import CUSTOMERS  # noqa: TID252 - pytest gives tests no absolute name
from .brokers import ONE, Brokers, Setup
from .heartbeats import Beats
from .host import Power
from .hosts import HOSTS
from .proxy import Proxy
from .site_shop import SiteShop
from .witness import Witness

SESSION = 6.0
"""The session timeout in seconds: the shortest that a broker with default settings permits."""
LARGEST_MESSAGE = 20_000
"""The maximum bytes of a message of the shop's topics, so that a poison record is easy to create."""
RECORDER = Path(__file__).with_name("recorder")
"""The folder with the module that Python imports as it starts."""
SKEWED_RECORDS = 60
"""Most records in a transaction if there are few keys."""
EXACTLY_ONCE = "exactly-once"
START_SECONDS = {"inline": 60.0, "spark": 300.0}


class Site:
    """One database, one broker or more, several harvesters; a context manager that starts and ends them.

    Args:
        folder: The folder for settings, logs and history.
        engine: ``inline`` or ``spark``.
        chance: The source of the faults' random choices.
        delivery: ``at-least-once`` or ``exactly-once``.
        database: One of ``HOSTS``.
        options: Options of the dialect, by the names that a configuration has for them.
        intake: Through which of :data:`tests.events.INTAKES` records come; empty for none.
        harvesters: How many processes compete.
        session: The election's session time-out in seconds.
        setup: Which brokers.
        keys: So few keys, the first with most records, so that runs of them are in flight; ``None`` for many.
        keeps: Whether delivered records are kept.

    Attributes:
        password: Of the harvesters' database user; no log and no output may contain it.
        lanes: The number of lanes of harvesters that are started from now on.
        keeps: As above.
        slots: The competing processes; :meth:`heal` replaces those that ended.
        may_end: The processes that a fault ends, or may end.
        detour: The port of a pooler through which harvesters reach the database; ``None`` for none.
        election: The broker's last description of the group that elects a leader.
    """

    def __init__(
        self,
        folder: Path,
        engine: str,
        chance: random.Random,
        *,
        delivery: str = "at-least-once",
        database: str = "postgres",
        options: Mapping[str, Any] | None = None,
        intake: str = "",
        harvesters: int = 3,
        session: float = SESSION,
        setup: Setup = ONE,
        keys: int | None = None,
        keeps: bool = False,
    ) -> None:
        self.folder = folder
        self.engine = engine
        self.delivery = delivery
        self.database = database
        self.intake = intake
        self.options = {**(options or {}), **({"intake": events.intake(intake)} if intake else {})}
        self.keeps = keeps
        if keeps:
            self.options["keep"] = {"for": f"{KEPT_SECONDS:g}s"}
        self.chance = chance
        self.session = session
        self.password = f"s3cret-{secrets.token_hex(8)}"
        self.host = HOSTS[database](folder, self.password)
        self.setup = setup
        self._keys = keys
        self.lanes = min(self.host.lanes, setup.most_lanes)
        self.slots: dict[str, Harvester] = {}
        self.may_end: set[str] = set()
        self.election = ""
        self.detour: int | None = None
        self._letters = "abcdefgh"[:harvesters]
        self._generation = itertools.count(1)
        self._topics = itertools.count(1)
        self._history = (folder / "history.jsonl").open("a", encoding="utf-8")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self) -> None:
        self._stack.callback(self._history.close)
        self.witness: Witness
        self._stack.enter_context(self.host)
        self.to_database = Proxy(lambda: self.detour or self.host.server.port, self.host.speech)
        self._stack.callback(self.to_database.close)
        self.brokers = self._stack.enter_context(Brokers(self.setup, self.folder))
        self._stack.callback(self._keep_logs)
        self.host.database.taken = bool(self.intake)
        self.shop = SiteShop(self.host.database, self.brokers, self._new_topic())
        if self._keys is not None:
            self.shop.customers, self.shop.most_records = CUSTOMERS[: self._keys], SKEWED_RECORDS
        self.shop.open(LARGEST_MESSAGE)
        if self.keeps:
            self.host.database.keep_records()
        self.host.database.dialect.create()
        self.host.admit()
        self.beats = self._stack.enter_context(Beats(self.host.database.dialect))
        self.fleet = Fleet(self.folder, self.shop)
        self._stack.callback(self.fleet.close)
        self._look()
        self._stack.callback(lambda: self.witness.close())  # noqa: PLW0108 - the witness at that time
        facts = {
            "intake": self.intake,
            "engine": self.engine,
            "delivery": self.delivery,
            "session": self.session,
        }
        self.note("site", database=self.database, brokers=self.setup.title, **facts)

    def _keep_logs(self) -> None:
        logs = [self.kafka.log] if isinstance(self.kafka, KafkaBroker) else []  # others are there
        if Power.SERVER in self.host.powers:
            logs.append(self.host.server.log)
        for log in logs:
            shutil.copy(log, self.folder)

    @property
    def kafka(self) -> KafkaBroker | KafkaCluster:
        """The broker, or all of them."""
        return self.brokers.kafka

    @property
    def to_kafka(self) -> Proxy:
        """The proxy before the broker, or before the first of them."""
        return self.brokers.proxies[0]

    # --- what is kept of it -------------------------------------------------------------------------

    def note(self, what: str, /, **facts: object) -> float:
        """Adds an event to the history; returns its time."""
        at = time.time()
        self._history.write(json.dumps({"at": round(at, 3), "what": what, **facts}, default=str) + "\n")
        self._history.flush()
        return at

    # --- the shop -----------------------------------------------------------------------------------

    def renew_shop(self, *, keep: bool = True) -> None:
        """Starts the shop anew, with a new topic and without sales.

        Args:
            keep: Whether several brokers keep the former topic: the more topics, the later they start.
        """
        self.witness.close()
        self.brokers.settle()
        if self.setup.copies > 1 and not keep:
            self.shop.delete_topic()
        self.shop.database.clear()
        self.shop.commits.clear()
        self.shop.topic = self._new_topic()
        self.shop.create_topic(LARGEST_MESSAGE)
        self._look()

    def _new_topic(self) -> str:
        return f"shop-{next(self._topics)}"

    def _look(self) -> None:
        self.witness = Witness(self.kafka.bootstrap, self.shop.topic, self.setup.partitions)

    # --- the harvesters -----------------------------------------------------------------------------

    def launch(self, letter: str) -> Harvester:
        """Starts a harvester in a slot."""
        name = f"{letter}{next(self._generation)}"
        harvester = self.fleet.start(
            name,
            engine=self.engine,
            delivery=self.delivery,
            environment=self._recorder(name),
            elector={"driver": "neli-kafka", "sessionTimeout": f"{self.session:g}s"},
            baseKafkaConfig={"bootstrap.servers": self.brokers.bootstrap},
            producerKafkaConfig={"delivery.timeout.ms": round(self.session * 1000 * 2 / 3)},
            dialect={"driver": self.shop.database.driver, **self.options},
            dataSource=self.host.source(name, self.to_database.port),
            limits={"sendConcurrency": self.lanes, "minMetricsInterval": "1s"},
        )
        self.slots[letter] = harvester
        self.note("start", harvester=name, pid=harvester.pid, lanes=self.lanes)
        return harvester

    def _recorder(self, name: str) -> dict[str, str]:
        """Returns the environment of a harvester that records what it asks of database and broker."""
        if self.delivery != EXACTLY_ONCE or self.engine != "inline":
            return {}  # Spark may run the lanes of a leader in several processes at a time
        path = filter(None, (str(RECORDER), os.environ.get("PYTHONPATH")))
        return {"PYTHONPATH": os.pathsep.join(path), "OUTBOX_TRACE": str(self.folder / f"{name}.trace")}

    def heal(self) -> None:
        """Replaces processes that ended, and waits until all compete and one of them leads.

        Raises:
            AssertionError: A process ended although no fault ends it, or does not start.
        """
        ended = {letter for letter in self._letters if not self._runs(letter)}
        surprises = [
            self.slots[letter] for letter in ended if letter in self.slots and not self._meant(letter)
        ]
        self.may_end.clear()
        started = [self.launch(letter) for letter in sorted(ended)]
        for harvester in started:
            harvester.wait_for("joined the election", START_SECONDS[self.engine])
        try:
            until(self._all_compete, "all compete", 5 * self.session + 60, pause=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: the group is {self.election}") from error
        until(lambda: self.leader() is not None, "one of them leads", 3 * self.session + 60)
        words = "\n".join(f"{each.name} ended by itself:\n{each.tail()}" for each in surprises)
        assert not surprises, words

    def restore(self) -> None:
        """Undoes what a failed fault has left behind, and kills all harvesters."""
        self.to_database.delay = 0.0
        self.to_database.speak()
        self.to_database.end_idle(None)
        self.detour = None
        self.shop.calm.clear()
        self.host.restore()
        self.brokers.restore()
        for letter, harvester in self.slots.items():
            self.may_end.add(letter)
            harvester.close()

    def _runs(self, letter: str) -> bool:
        return letter in self.slots and self.slots[letter].running

    def _meant(self, letter: str) -> bool:
        return bool({letter, self.slots[letter].name} & self.may_end)

    def _all_compete(self) -> bool:
        try:
            group = self.shop.admin.describe_consumer_groups([self.fleet.group])[self.fleet.group].result(10)
        except (KafkaException, TimeoutError) as error:
            # The broker may have just restarted, and this client sometimes does not reconnect.
            self.election = f"unknown: {type(error).__name__} {error}"
            self.shop.renew_admin()
            return False
        self.election = f"{group.state.name} with {len(group.members)} members"
        return group.state == ConsumerGroupState.STABLE and len(group.members) == len(self._letters)

    def leader(self) -> Harvester | None:
        """Returns the process that holds the fence, if it runs and its lanes have entered."""
        holders = {each.holder for each in self._lane_statuses() if not each.fence.lane and each.fence.epoch}
        return next((each for each in self.slots.values() if each.running and each.name in holders), None)

    def chief(self) -> tuple[str, Harvester]:
        """Returns slot and process of the leader.

        Raises:
            AssertionError: No process leads.
        """
        leader = until(self.leader, "one of them leads", 3 * self.session + 60)
        return next((letter, each) for letter, each in self.slots.items() if each is leader)

    def has_said(self, words: str, since: float) -> bool:
        """Returns whether a running harvester has written a line with these words since then."""
        return any(each.running and each.find(words, since) for each in self.slots.values())

    def token(self) -> int:
        """Returns the fence's token."""
        return max((each.fence.token for each in self._lane_statuses()), default=0)

    def acquired_at(self) -> float:
        """Returns when the present leader raised the fence, in seconds since the epoch."""
        return max((each.since.timestamp() for each in self._lane_statuses()), default=0.0)

    def lane_of_keys(self) -> Mapping[str, int]:
        """Returns customer → lane, as the database computes it for the present number of lanes."""
        lanes = max((each.fence.lanes for each in self._lane_statuses()), default=1)
        return self.shop.database.lane_of_keys(lanes)

    def _lane_statuses(self) -> Sequence[LaneStatus]:
        return self.shop.database.fence.lane_statuses()
