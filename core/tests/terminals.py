"""Programs on a terminal of their own, which is emulated."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from typing import Self

import pyte


class Terminal:
    """Runs a program on a terminal; a context manager that kills what still runs.

    Args:
        command: The program.
        columns: The width of its window.
        lines: The height.
        env: Further variables of its environment.
    """

    def __init__(self, command: Sequence[str], columns: int = 80, lines: int = 24, **env: str) -> None:
        self.raw = b""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._fd, window = pty.openpty()
        self._set_size(columns, lines)
        plain = {
            name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}
        }
        variables = plain | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | env
        self.process = subprocess.Popen(
            command, stdin=window, stdout=window, stderr=window, env=variables, start_new_session=True
        )
        os.close(window)

    @property
    def text(self) -> str:
        """What the window shows."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def resize(self, columns: int, lines: int) -> None:
        self._set_size(columns, lines)
        self.screen.resize(lines, columns)
        self.process.send_signal(signal.SIGWINCH)

    def until(self, shown: Callable[[str], object], seconds: float = 60.0) -> None:
        """Waits until a condition is true of what the window shows."""
        deadline = time.monotonic() + seconds
        while not shown(self.text):
            assert time.monotonic() < deadline, self.text
            assert self._read(1.0) or self.process.poll() is None, self.text

    def press(self, keys: str) -> None:
        """Presses keys."""
        os.write(self._fd, keys.encode())

    def vanish(self) -> None:
        """Takes the terminal away; the program is not told."""
        os.close(self._fd)
        self._fd = os.open(os.devnull, os.O_RDONLY)

    def is_raw(self) -> bool:
        """Returns whether the program gets each key as it is pressed."""
        return not termios.tcgetattr(self._fd)[3] & termios.ICANON

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Sends a signal, which by default is that of Ctrl-C; returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Waits for the end of the program; returns its exit code."""
        while self.process.poll() is None:
            self._read(0.1)
        while self._read(0.0):
            pass
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _read(self, timeout: float) -> bool:
        if not select.select([self._fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # as Linux says that nobody writes any more
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
