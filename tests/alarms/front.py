"""Where Prometheus reaches a process that has not chosen its port yet."""

from __future__ import annotations

from ..faults.name import NOBODY  # noqa: TID252 - pytest gives tests no absolute name
from ..faults.proxy import Proxy  # noqa: TID252 - pytest gives tests no absolute name
from ..harvesters import Harvester  # noqa: TID252 - pytest gives tests no absolute name

ANY_PORT = "127.0.0.1:0"
"""What such a process listens on."""


class Front(Proxy):
    """A port that leads to a process, and then to the one that takes its place.

    Attributes:
        harvester: The process, which serves on any port; nobody at first.
    """

    def __init__(self) -> None:
        self.harvester: Harvester | None = None
        super().__init__(self._serving)

    @property
    def address(self) -> str:
        """What Prometheus scrapes."""
        return f"127.0.0.1:{self.port}"

    def _serving(self) -> int:
        # The port of a process that has ended may be another one's.
        if self.harvester is None or not self.harvester.running:
            return NOBODY
        line = self.harvester.find("serving on http://")
        return int(line.text.rpartition(":")[2]) if line else NOBODY
