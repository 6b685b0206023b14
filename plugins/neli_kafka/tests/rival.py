"""One competing process: takes part in an election and says what happens to it, a line each.

Run as a program, it reads what to do from standard input: an empty line, or its end, means to stop.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from dataclasses import dataclass
from threading import Thread

from outbox_neli_kafka import NeliElector, NeliOptions
from outbox_sdk.election import elapsed


class Teller:
    """A candidate that prints its events with their times."""

    def __init__(self, drain: float) -> None:
        self._drain = drain

    def acquired(self) -> None:
        tell("acquired")

    def revoked(self) -> None:
        tell("revoking")
        time.sleep(self._drain)
        tell("revoked")

    def fenced(self) -> None:
        tell("fenced")

    def failed(self, error: Exception) -> None:
        tell(f"failed {error}")


def tell(what: str) -> None:
    sys.stdout.write(f"{elapsed()} {what}\n")
    sys.stdout.flush()


def main(bootstrap: str, group: str, session: float, drain: float) -> None:
    options = NeliOptions({"bootstrap.servers": bootstrap}, leader_group_id=group, session_timeout=session)
    elector = NeliElector(options)
    elector.start(Teller(drain))
    tell("started")
    sys.stdin.readline()
    elector.stop()
    tell("stopped")


@dataclass(frozen=True)
class Told:
    """An event in some rival's life, on the clock that all processes share."""

    at: float
    what: str
    rival: Rival


class Rival:
    """The parent's view of a competing process."""

    def __init__(
        self, told: queue.Queue[Told], bootstrap: str, group: str, *, session: float, drain: float = 0
    ) -> None:
        self._told = told
        self.process = subprocess.Popen(
            [sys.executable, __file__, bootstrap, group, str(session), str(drain)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """Asks the process to stop, and waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()  # not communicate, which would read what the reader is to read
        self.process.wait(timeout=30)
        self._reader.join()

    def end(self) -> None:
        """Kills the process, whatever state it is in."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, _, what = line.strip().partition(" ")
            self._told.put(Told(float(at), what, self))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
