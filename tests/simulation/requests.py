"""Requests of transactional producers to the broker, which may be late, or lost, or go without an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .scheduler import Host

if TYPE_CHECKING:
    from .broker import Broker

TIMED_OUT = "timed out"
"""The answer to a request of which nothing was heard in time, whether or not it had an effect."""
REQUEST_SECONDS = 1.0
"""How long an answer is waited for."""
PAUSE_SECONDS = 0.1
"""The longest that a client waits before it sends a request again."""

Reply = Callable[[Any], None]


class Request:
    """One request, answered exactly once on the caller's host unless that ends before.

    Args:
        broker: Where it goes.
        host: The caller's.
        action: What the broker does when it arrives; calls back with the answer, at once or later.
        answer: Takes the answer.
    """

    __slots__ = ("_action", "_answer", "_boot", "_broker", "_deadline", "_host", "_mute", "_over")

    def __init__(self, broker: Broker, host: Host, action: Callable[[Reply], None], answer: Reply) -> None:
        self._broker = broker
        self._host = host
        self._action = action
        self._answer = answer
        self._boot = broker.boot
        self._deadline = broker.scheduler.now + REQUEST_SECONDS
        self._mute = self._over = False
        self._send()

    def _send(self) -> None:
        broker, random = self._broker, self._broker.chance.random
        delay = 0.0005 + random() * 0.003
        if broker.is_cut_off(self._host):
            self._host.after(REQUEST_SECONDS, self._give_up)
            return
        if random() < broker.lossy:
            fate = broker.chance.choice(("lost requests to the broker", "lost answers", "late requests"))
            broker.counts[fate] += 1
            self._mute = True
            self._host.after(random() * REQUEST_SECONDS, self._give_up)
            if fate == "lost requests to the broker":
                return
            delay += REQUEST_SECONDS * 2 * random() if fate == "late requests" else 0.0
        elif broker.late and random() < 0.1:
            delay += random() * broker.late
        broker.scheduler.after(delay, self._arrive)

    def _arrive(self) -> None:
        broker, now = self._broker, self._broker.scheduler.now
        if broker.away_until > now:
            if self._deadline < broker.away_until:
                self._mute = True
                self._host.after(max(self._deadline - now, 0.0), self._give_up)
                if broker.chance.random() < 0.5:
                    return
            broker.scheduler.at(broker.away_until, self._arrive)
            return
        self._boot = broker.boot
        self._action(self._reply)

    def _reply(self, result: Any) -> None:
        now = self._broker.scheduler.now
        if self._boot != self._broker.boot or now > self._deadline or self._broker.is_cut_off(self._host):
            self._host.after(max(self._deadline - now, 0.0), self._give_up)
        elif not self._mute:
            self._host.after(self._broker.chance.random() * 0.003, self._deliver, result)

    def _give_up(self) -> None:
        self._deliver(TIMED_OUT)

    def _deliver(self, result: Any) -> None:
        if not self._over:
            self._over = True
            self._answer(result)


class TwiceSent(Request):
    """One that the client may send a second time, as its connection breaks while it waits.

    Args:
        repeated: Called if so. The first copy may arrive at any later moment.
    """

    __slots__ = ("_repeated",)

    def __init__(
        self,
        broker: Broker,
        host: Host,
        action: Callable[[Reply], None],
        answer: Reply,
        repeated: Callable[[], None],
    ) -> None:
        self._repeated = repeated
        super().__init__(broker, host, action, answer)

    def _send(self) -> None:
        broker, random = self._broker, self._broker.chance.random
        if broker.repeated and random() < broker.repeated and not broker.is_cut_off(self._host):
            broker.counts["ends sent twice"] += 1
            self._repeated()
            self._host.after(random() * PAUSE_SECONDS, super()._send)
        else:
            super()._send()
