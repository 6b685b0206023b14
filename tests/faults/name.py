"""The name of a server, which can lead to another one."""

from __future__ import annotations

from collections.abc import Callable

from .proxy import Proxy, Speech

NOBODY = 9
"""A port at which nobody listens."""


class Name(Proxy):
    """A port that leads to a server, or nowhere; known to the application and to the runner.

    Args:
        target: Returns the port of the server that has the name.
        speech: The server's protocol.

    Attributes:
        given: Whether it leads to a server.
    """

    def __init__(self, target: Callable[[], int], speech: Speech) -> None:
        self.given = True
        super().__init__(lambda: target() if self.given else NOBODY, speech)

    def take(self) -> None:
        """Makes it lead nowhere, and cuts its connections."""
        self.given = False
        self.cut()

    def give(self) -> None:
        """Makes it lead to the server."""
        self.given = True
