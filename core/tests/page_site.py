"""For tests of the page: a server of outboxes whose databases are none."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from outbox_api.base.errors import OutboxError
from outbox_api.seams.journal import ALL_ENTRIES, Action, ChosenEntries, Entry
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus
from outbox_api.seams.pausing import Pause
from outbox_console.app import application
from outbox_console.prometheus import Prometheus
from outbox_console.server import HttpServer
from outbox_core import operations
from outbox_core.config import parse
from outbox_core.monitoring.figures import Figures, RunningOutbox
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.operations import Changed, Operator, PauseChanged, Raised, TakeoverChanged, Verb
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.history import History
from outbox_core.status.snapshot import Snapshot

from .http_client import Answered, Site
from .http_server import ALICE, VIEWER, Harvest
from .page_states import HOSTILE, NOW, snapshot

AS_VIEWER = {"Authorization": f"Bearer {VIEWER}"}
AS_ALICE = {"Authorization": f"Bearer {ALICE}"}


class PageSite(Site):
    """A server with a page."""

    def post(self, path: str, token: str, **fields: str) -> Answered:
        """Sends a form, as whoever has a token."""
        return self.ask(
            "POST",
            path,
            ("Authorization", f"Bearer {token}"),
            ("Accept", "text/html"),
            ("Content-Type", "application/x-www-form-urlencoded"),
            body=urlencode(fields),
        )


def configured(outboxes: object = None, **more: str) -> Settings:
    """Returns a configuration with a viewer and the operator alice, and with more keys below ``http``."""
    tokens = {"viewerTokens": [VIEWER], "operatorTokens": {"alice": ALICE}}
    http = {"listen": "127.0.0.1:0", **tokens, **more}
    data = {"http": http, "harvest": {"engine": "inline"}}
    return parse(json.dumps(data if outboxes is None else data | {"outboxes": outboxes}))


class Database:
    """Shows one state, hangs or fails."""

    def __init__(self) -> None:
        self.states: dict[str, Snapshot | Exception] = {}
        self.state: Snapshot | Exception = snapshot()
        self.looks = 0
        self.answers = threading.Event()
        self.answers.set()

    @contextmanager
    def view(self) -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(settings: HarvestSettings) -> Snapshot:
            self.looks += 1
            assert self.answers.wait(60)
            state = self.states.get(settings.title, self.state)
            if isinstance(state, Exception):
                raise state
            return state

        yield look


@dataclass
class Operations:
    """What the page does, on lists instead of databases."""

    found: list[DeadLetter] = field(default_factory=list)
    noted: list[Entry] = field(default_factory=list)
    error: Exception | None = None
    reads: int = 0
    counts: threading.Event = field(default_factory=threading.Event)
    counting: int = 0
    seen: list[int | None] = field(default_factory=list)
    paused: list[tuple[Verb, str, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts.set()

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("letters", "entries", "waiting", "reveal", "check_cluster", "topics_waiting"):
            monkeypatch.setattr(operations, name, getattr(self, name))
        monkeypatch.setattr("outbox_core.operations.dead_letters.letters", self.letters)
        monkeypatch.setattr("outbox_core.operations.dead_letters.change", self.change)
        for name in ("reveal", "change", "raise_fence", "change_takeover", "change_pause"):
            monkeypatch.setattr(f"outbox_core.operations.dispatch.{name}", getattr(self, name))

    def letters(
        self, settings: HarvestSettings, status: DeadLetterStatus | None = None, keys: Sequence[str] = ()
    ) -> list[DeadLetter]:
        self.reads += 1
        self._answer()
        hidden = [replace(each, record=each.record._replace(value=None)) for each in self.found]
        chosen = [each for each in hidden if status in {None, each.status}]
        return [each for each in chosen if not keys or each.record.key in keys]

    def entries(
        self, settings: HarvestSettings, limit: int = 100, chosen: ChosenEntries = ALL_ENTRIES
    ) -> Sequence[Entry]:
        self._answer()
        begin = [each.id for each in self.noted].index(chosen.after) + 1 if chosen.after else 0
        found = [each for each in self.noted[begin:] if chosen.verb in {"", each.action.verb}]
        return found[:limit]

    def waiting(self, settings: HarvestSettings, letter: int) -> int:
        self.counting += 1
        assert self.counts.wait(30)
        return 1234

    def reveal(self, settings: HarvestSettings, ids: Sequence[int], operator: Operator) -> list[DeadLetter]:
        self._note(Verb.REVEAL, str(ids), operator)
        return [each for each in self.found if each.record.id in ids]

    def raise_fence(self, settings: HarvestSettings, operator: Operator, seen: int | None = None) -> Raised:
        self.seen.append(seen)
        self._note(Verb.RAISE_FENCE, "", operator)
        return Raised(4_300_000, 2, operator.holder, "harvester-a, token 4200017")

    def change_takeover(
        self, settings: HarvestSettings, verb: Verb, cluster: int, operator: Operator, seen: int | None = None
    ) -> TakeoverChanged:
        self.seen.append(seen)
        self._note(verb, f"cluster {cluster}", operator)
        return TakeoverChanged(verb, cluster, changed=True, token=5 if verb is Verb.TAKE_OVER else 6)

    def topics_waiting(self, settings: HarvestSettings) -> dict[str, int]:
        self._answer()
        return {"orders": 1204, HOSTILE: 1}

    def change_pause(
        self, settings: HarvestSettings, verb: Verb, topic: str, operator: Operator, seconds: float | None
    ) -> PauseChanged:
        self.paused.append((verb, topic, seconds))
        self._note(verb, topic, operator)
        until = None if seconds is None else NOW + timedelta(seconds=seconds)
        pause = Pause(topic, operator.name, operator.reason, NOW, until, 300.0)
        return PauseChanged(verb, topic, pause, query=False)

    def check_cluster(self, settings: HarvestSettings, verb: Verb, cluster: int) -> None:
        if cluster != 2:
            raise OutboxError(f"there is no cluster {cluster}; the others are 2")

    def change(
        self, settings: HarvestSettings, verb: Verb, ids: Sequence[int], operator: Operator, chosen: str = ""
    ) -> Changed:
        changed = tuple(each.record.id for each in self.found if each.record.id in ids)
        self._note(verb, ", ".join([*filter(None, [chosen]), *map(str, ids)]), operator)
        self.found = [each for each in self.found if each.record.id not in changed]
        return Changed(verb, changed, tuple(each for each in ids if each not in changed))

    def _note(self, verb: Verb, subject: str, operator: Operator) -> None:
        self._answer()
        action = Action(operator.name, operator.via, verb, subject, operator.reason)
        self.noted.insert(0, Entry(uuid4(), datetime.now(UTC), action, "done"))

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a page after a change wait for a short while only until the database is looked at again."""
    for name in (
        "outbox_core.monitoring.polls.SHARED_SECONDS",
        "outbox_core.monitoring.statuses.POLL_SECONDS",
    ):
        monkeypatch.setattr(name, 0.1)


@contextmanager
def serving(
    settings: Settings, database: Database, history: Callable[[str], History] = lambda _: History()
) -> Iterator[PageSite]:
    def observe() -> list[RunningOutbox]:
        return [RunningOutbox(outbox, Harvest()) for outbox in settings.outboxes]

    looks = StatusPolls(database.view)
    app: Any = application(settings, observe, looks, Prometheus(Figures(observe, looks), "test"), history)
    with HttpServer(settings.http.address, app) as server:
        yield PageSite(server.address.port)
