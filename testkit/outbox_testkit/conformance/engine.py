"""The suite for engines: tasks run in other processes, and whoever runs them hears how they ended.

The complete test file of an engine::

    class TestSpark(EngineConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def engine(cls):
            return EngineUnderTest("spark")
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from outbox_api import Engine, Level, Needs, OutboxError, Seam, Task, WorkerLost, Workers, find

PATIENCE = 60.0
"""Seconds for what must happen."""
NEEDS = Needs("conformance", 4)
SERVICE_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class EngineUnderTest:
    """An engine.

    Attributes:
        driver: Its driver name.
        options: Its options, by the names of their fields.
    """

    driver: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def create(self) -> Engine:
        """Makes the engine."""
        driver = find(Seam.ENGINE, self.driver)
        return driver.create(driver.options(**self.options))


def note(file: str) -> None:
    """A task that writes the number of its process."""
    draft = Path(f"{file}.{os.getpid()}")  # another process may run the same task at the same time
    draft.write_text(str(os.getpid()))
    draft.rename(file)


def note_and_wait(file: str, until: str) -> None:
    """A task that writes the number of its process, and ends when there is another file."""
    note(file)
    while not Path(until).exists():
        sleep(0.05)


def fail(reason: str) -> None:
    """A task that has a defect."""
    raise ValueError(reason)


def until(true: Callable[[], object]) -> None:
    """Waits until something is true."""
    give_up = monotonic() + PATIENCE
    while not true():
        assert monotonic() < give_up
        sleep(0.05)


def is_gone(pid: int) -> bool:
    """Tells whether a process has ended; one that its parent has not waited for has, too."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    return False


class EngineConformance:
    """What every engine with processes of its own must do."""

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, engine: EngineUnderTest) -> Iterator[Engine]:
        """The engine, kept open by an outbox that does nothing."""
        made = engine.create()
        kept = made.open("kept", 1, NEEDS)
        yield made
        kept.close()

    @pytest.fixture
    def workers(self, opened: Engine) -> Iterator[Workers]:
        """The processes of one outbox, which may run two tasks."""
        workers = opened.open("conformance", 2, NEEDS)
        yield workers
        workers.close()

    @pytest.fixture
    def start(self, workers: Workers) -> Iterator[Callable[[Task], Future[None]]]:
        """Runs a task on a thread of its own; all are cancelled at the end."""
        with ThreadPoolExecutor() as pool:
            yield lambda task: pool.submit(workers.run, task, "a task")
            workers.cancel()

    def test_a_task_runs_to_its_end_in_another_process(self, workers: Workers, tmp_path: Path) -> None:
        workers.run(partial(note, f"{tmp_path}/pid"), "a task")
        assert int((tmp_path / "pid").read_text()) != os.getpid()

    def test_tasks_run_at_the_same_time(self, start: Callable[[Task], Future[None]], tmp_path: Path) -> None:
        names = f"{tmp_path}/one", f"{tmp_path}/two"
        runs = [start(partial(note_and_wait, *each)) for each in (names, names[::-1])]
        for run in runs:
            run.result(PATIENCE)

    def test_the_error_of_a_task_is_told_in_one_line(self, workers: Workers) -> None:
        with pytest.raises(WorkerLost) as caught:
            workers.run(partial(fail, "the reason"), "a task")
        assert "ValueError: the reason" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_task_whose_process_is_killed_can_run_again(
        self, workers: Workers, start: Callable[[Task], Future[None]], tmp_path: Path
    ) -> None:
        run = start(partial(note_and_wait, f"{tmp_path}/pid", f"{tmp_path}/never"))
        until((tmp_path / "pid").exists)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        with pytest.raises(WorkerLost):
            run.result(PATIENCE)
        workers.check()
        workers.run(partial(note, f"{tmp_path}/again"), "a task")

    @pytest.mark.parametrize("frozen", [False, True])
    def test_cancelled_tasks_end_and_others_run_afterwards(
        self, workers: Workers, start: Callable[[Task], Future[None]], tmp_path: Path, *, frozen: bool
    ) -> None:
        run = start(partial(note_and_wait, f"{tmp_path}/pid", f"{tmp_path}/never"))
        until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        if frozen:
            os.kill(pid, signal.SIGSTOP)
        workers.cancel()
        workers.cancel()
        with pytest.raises(OutboxError):
            run.result(PATIENCE)
        until(lambda: is_gone(pid))
        workers.run(partial(note, f"{tmp_path}/again"), "a task")

    def test_an_outbox_that_cancels_and_closes_leaves_others_alone(
        self, opened: Engine, start: Callable[[Task], Future[None]], tmp_path: Path
    ) -> None:
        run = start(partial(note_and_wait, f"{tmp_path}/pid", f"{tmp_path}/end"))
        until((tmp_path / "pid").exists)
        other = opened.open("other", 1, NEEDS)
        other.cancel()
        other.close()
        other.close()
        assert not run.done()
        (tmp_path / "end").touch()
        run.result(PATIENCE)

    def test_what_ends_a_service_does_not_end_tasks_before_their_lanes_have_drained(
        self, start: Callable[[Task], Future[None]], tmp_path: Path
    ) -> None:
        run = start(partial(note_and_wait, f"{tmp_path}/pid", f"{tmp_path}/end"))
        until((tmp_path / "pid").exists)
        for number in SERVICE_SIGNALS:
            os.kill(int((tmp_path / "pid").read_text()), number)
        sleep(0.5)  # for what must not happen
        assert not run.done()
        (tmp_path / "end").touch()
        run.result(PATIENCE)

    def test_warming_runs_a_task_and_tells_why_it_cannot(self, workers: Workers, tmp_path: Path) -> None:
        workers.warm(partial(note, f"{tmp_path}/pid"))
        assert int((tmp_path / "pid").read_text()) != os.getpid()
        with pytest.raises(OutboxError, match="the reason"):
            workers.warm(partial(fail, "the reason"))

    def test_the_harvester_can_be_reached_where_the_engine_says(self, workers: Workers) -> None:
        assert workers.where
        assert workers.address is not None
        assert workers.address.host

    def test_the_check_tells_findings_with_their_cures(self, opened: Engine) -> None:
        findings = opened.check(2)
        assert findings
        assert all(finding.cure for finding in findings if finding.level is not Level.OK)
