"""A thread that writes as applications do: in transactions short and long, some of them rolled back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from random import Random
from threading import Event, Thread
from typing import Any

Written = Sequence[tuple[str, int]]
"""Records of one transaction: each as its key and its number among the records of that key."""

_RECONNECT_SECONDS = 0.1


class Writer(Thread, ABC):
    """Runs one transaction after another until it is told to stop.

    A transaction that stays open has lower ids than many that others commit meanwhile. A subclass says what
    is written, where, and what follows from a commit or rollback; all of its methods run on this thread.

    Args:
        name: The thread's name.
        random: Makes its choices.
        rollback_share: The share of transactions that it rolls back.
        ending: Set when it must stop; it finishes its transaction first.
    """

    def __init__(self, name: str, *, random: Random, rollback_share: float, ending: Event) -> None:
        super().__init__(name=name, daemon=True)
        self.error: Exception | None = None
        """The error that ended it; the outcome of its last transaction is then unknown."""
        self.random = random
        self._rollback_share = rollback_share
        self._ending = ending

    @abstractmethod
    def connect(self) -> Any:
        """Opens a DB-API connection, with transactions on."""

    @abstractmethod
    def write(self, connection: Any) -> Written:
        """Writes the records of one transaction; neither commits nor rolls back."""

    @abstractmethod
    def open_seconds(self) -> float:
        """Returns how long the transaction stays open after it has written."""

    @abstractmethod
    def pause_seconds(self) -> float:
        """Returns how long to wait after the transaction."""

    def is_temporary(self, error: Exception) -> bool:
        """Tells whether to connect again after an error; otherwise it ends the thread."""
        del error
        return False

    def committing(self, written: Written) -> None:
        """Is called before the commit is requested."""

    def committed(self, written: Written) -> None:
        """Is called after the commit is confirmed."""

    def rolled_back(self, written: Written) -> None:
        """Is called after a rollback that the writer chose."""

    def run(self) -> None:
        """Writes until the end, or the first error that is not temporary."""
        try:
            while not self._ending.is_set():
                self._write_until_disconnected()
        except Exception as error:  # noqa: BLE001 - kept for whoever started the thread
            self.error = error

    def _write_until_disconnected(self) -> None:
        try:
            with closing(self.connect()) as connection:
                while not self._ending.is_set():
                    self._transact(connection)
        except Exception as error:
            if not self.is_temporary(error):
                raise
            self._ending.wait(_RECONNECT_SECONDS)

    def _transact(self, connection: Any) -> None:
        written = self.write(connection)
        self._ending.wait(self.open_seconds())
        if self.random.random() < self._rollback_share:
            connection.rollback()
            self.rolled_back(written)
        else:
            self.committing(written)
            connection.commit()
            self.committed(written)
        self._ending.wait(self.pause_seconds())
