"""Follows docs/start.md in a shell, and compares what is printed with what the page shows."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "quickstart"
PAGE = (ROOT / "docs" / "start.md").read_text("utf-8")
PATIENCE = 300.0
"""Seconds until a line that the page shows must have come."""
ANYTHING = "…"
"""Stands on the page for lines that it leaves out."""
MASKS = (
    (r"\b\w+_\d+_\d{9,}\b", "NAME"),  # a harvester's own
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"(\d+m)?\d[\d.]*( ?m?s)?\b", "0"),
    ("silent, ", ""),  # of a process that was killed half a minute before
    ("is starting", "stands by"),  # of one that was killed before its second note
    (r"[ ─]+", " "),
)
SETTLED = "until {} | grep -q 'backlog *0 '; do sleep 1; done"
"""Waits until what was received is deleted, too: otherwise it would come again."""
TOLD = "until {0} | grep -q latency; do sleep 1; done; {0}"
"""Waits for the first heartbeat with records: a person reads for longer than a test."""
NOT_SHOWN = re.compile(
    r" *(Network|Container) quickstart|shop-1 exited|bash: line \d+: .* Killed .*|.*\bonce\)$"
)
"""What Compose and the shell say of their processes, and what happens the first time."""


def blocks(language: str) -> list[str]:
    """Returns what stands between fences of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def steps(*, docker: bool) -> Iterator[tuple[str, list[str]]]:
    """Yields the commands of the way with Docker, or the one without, each with the lines behind it."""
    for before, block in re.findall(r"([^\n]+)\n\n```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for_both = before.endswith("in front:")
        if for_both or ("docker " in block) == docker:
            for each in block.removeprefix("$ ").split("\n$ "):
                command, *output = each.splitlines()
                yield command, output


def masked(line: str) -> str:
    """Returns a line without what differs from run to run; nothing of a line that does not count."""
    line = re.sub(r"\x1b\[\d*[A-Za-z]", "", line)
    if NOT_SHOWN.match(line):
        return ""
    for pattern, instead in MASKS:
        line = re.sub(pattern, instead, line)
    return line.strip()


class Transcript:
    """What a shell prints, line by line, beside what is expected of it."""

    def __init__(self, shell: subprocess.Popen[str]) -> None:
        self.seen: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._anything = False
        self._reader = threading.Thread(target=self._read, args=(shell,), daemon=True)
        self._reader.start()

    def _read(self, shell: subprocess.Popen[str]) -> None:
        assert shell.stdout
        with shell.stdout as output:
            for line in output:
                self.seen.append(line)
                if masked(line):
                    self._lines.put(masked(line))
        self._lines.put(None)

    def close(self) -> None:
        """Waits until the shell, which has no more input, and all that it has begun have ended."""
        self._reader.join(PATIENCE)

    def expect(self, lines: Sequence[str]) -> None:
        """Waits until these lines have come, in this order and no others."""
        for line in filter(None, map(masked, lines)):
            if line == ANYTHING:
                self._anything = True
                continue
            while (got := self._next()) != line:
                assert self._anything, f"{got!r} instead of {line!r} in:\n{''.join(self.seen)}"
            self._anything = False

    def expect_end(self) -> None:
        """Makes sure that no other line has come."""
        got = self._next()
        assert got is None, f"{got!r} at the end of:\n{''.join(self.seen)}"

    def _next(self) -> str | None:
        try:
            return self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"nothing more came after:\n{''.join(self.seen)}") from None


def follow(replaced: Mapping[str, str], environment: Mapping[str, str], *, docker: bool) -> None:
    """Types the page's commands into a shell, each when the lines of the one before have come.

    Args:
        replaced: Command of the page → what is typed instead.
        environment: Variables of the shell beside this process's.
        docker: Which way it takes.
    """
    shell = subprocess.Popen(
        ["bash"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert shell.stdin
    transcript = Transcript(shell)
    try:
        for command, output in steps(docker=docker):
            shell.stdin.write(f"{replaced.get(command, command)}\n")
            shell.stdin.flush()
            transcript.expect(output)
    finally:
        shell.stdin.close()
        transcript.close()
    transcript.expect_end()
    assert shell.wait(PATIENCE) == 0
