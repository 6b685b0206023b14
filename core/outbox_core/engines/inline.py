"""The inline engine: lanes as threads of this process, without a JVM."""

from __future__ import annotations

from outbox_core.lanes.plan import Plan
from outbox_core.lanes.threads import LaneThreads
from outbox_core.leadership.leader import Leadership
from outbox_core.log_context import ContextThread


class InlineEngine:
    """Runs all lanes as one group in this process."""

    def __init__(self) -> None:
        self._thread: ContextThread | None = None
        self._crash: Exception | None = None

    def warm(self) -> None:
        """Does nothing: threads need no preparation."""

    def start(self, plan: Plan, leadership: Leadership) -> None:
        """Starts a thread for each lane and one that reports for them."""
        self._crash = None
        group = LaneThreads(plan, 0, range(plan.lanes), leadership)
        self._thread = ContextThread(target=self._run, args=(group,), name="lanes", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Waits for the lanes to end."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        self._thread = None
        if self._crash is not None:
            raise self._crash
        return True

    def check(self) -> None:
        """Does nothing: threads can always be started."""

    def cancel(self) -> None:
        """Leaves the threads to themselves: they have their orders, and no lease to work on."""
        self._thread = None

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def _run(self, group: LaneThreads) -> None:
        try:
            for _ in group.run():
                pass
        except Exception as error:  # noqa: BLE001 - raised again by join()
            self._crash = error
