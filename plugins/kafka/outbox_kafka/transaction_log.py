"""Whether a transaction leaves requests behind that may be in doubt, as only librdkafka's log tells.

An EndTxn request that the broker does not answer, because the connection broke, is sent again. The call then
returns well, and the first copy may arrive in the middle of a later transaction and end that one: the broker
cannot tell, as the producer epoch is the same. So a producer whose end was not answered at its first sending
must not be used any more. The next one raises the epoch, with which the broker refuses the copy.

Neither may a producer be used after an abort before which it has put records back, to send them again: the
client gives their sequence numbers to the next records. If the broker has written the former ones, it takes
the latter for copies of them, acknowledges them, and they are lost.

librdkafka has no interface that tells of a repetition. Tested with librdkafka 2.16.0. A version with other
words makes every end one in doubt: that costs speed, and no records. With KIP-890 part 2 in librdkafka every
end raises the epoch, and this module goes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import libversion

from outbox_kafka.client.clients import LOGGER, ClientLog

_CONTEXT: Final = "eos"
"""librdkafka's name for what it logs of transactions."""

_ANSWER: Final = re.compile(r"EndTxn returned (\w+)")
_ANSWERED: Final = "NO_ERROR"
_NOT_SENT: Final = "not sending EndTxn"
_PUT_BACK: Final = re.compile(r"(\S+ \[\d+\]) beginning partition drain")
_NEW_EPOCH: Final = "Acquired"


class TransactionLog(ClientLog):
    """A transactional producer's log, which reads what becomes of its requests.

    Lines that the user has not asked for are not logged.
    """

    _is_mute = False
    """Whether this version was found to say nothing, which is logged once."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._debug: str = settings.get("debug") or ""
        self._answers: list[str] = []
        self._led: set[str] = set()  # partitions that have had a leader
        self.has_put_back = False  # records that the broker may have written, to send them again

    @property
    def contexts(self) -> str:
        """The producer's setting ``debug``: what the user asks for, and what is read here."""
        return f"{self._debug},{_CONTEXT}" if self._debug else _CONTEXT

    def begin(self) -> None:
        """Notes that a transaction is about to begin."""
        self.has_put_back = False

    def begin_end(self) -> None:
        """Notes that a transaction is about to end."""
        self._answers = []

    @property
    def is_in_doubt(self) -> bool:
        """Whether an EndTxn may be on its way that was not answered.

        Valid after the call that ended the transaction has returned, and the client was polled.
        """
        if not self._answers and not TransactionLog._is_mute:
            TransactionLog._is_mute = True
            version, _ = libversion()
            LOGGER.warning(
                "librdkafka %s does not say whether the ends of transactions were answered: each transaction "
                "needs a new producer, which takes a second; use a version that outbox was tested with",
                version,
            )
        return not self._answers or any(answer != _ANSWERED for answer in self._answers)

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        """Reads a line, and logs it as :meth:`ClientLog.log` does."""
        if facility == "ENDTXN":
            answer = _ANSWER.search(line)
            self._answers.append(answer[1] if answer else line)
        elif facility in ("TXNCOMMIT", "TXNABORT") and _NOT_SENT in line:
            self._answers.append(_ANSWERED)
        elif facility == "DRAIN" and (drained := _PUT_BACK.search(line)):
            # At the first time of a partition it waits for requests to a former leader, which it never had.
            self.has_put_back |= drained[1] in self._led
            self._led.add(drained[1])
        elif facility == "GETPID" and _NEW_EPOCH in line:
            self.has_put_back = False
            self._answers.append(_ANSWERED)  # an abort may be just that
        if level > logging.DEBUG or self._debug:
            super().log(level, template, facility, client, line)
