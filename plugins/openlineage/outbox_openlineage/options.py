"""The options of the listener, as users write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outbox_api import ConfigError, Duration, FileText, present_text
from outbox_api.seams.hooks import GIVEN

_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class OpenLineageOptions:
    """The listener ``openlineage``.

    Attributes:
        url: The server that receives events, such as ``http://marquez:5000``.
        endpoint: The path there.
        api_key: Is sent as a bearer token.
        namespace: The namespace of the job; its name is that of the outbox.
        interval: The time between two RUNNING events, at least.
        timeout: How long the server may be silent.
        kafka: Settings of the publisher's client, of which ``bootstrap.servers`` is read.
        topics: The topics that records may name; those that are no patterns are outputs.
        dataset: Returns namespace and name of the outbox table.
    """

    url: str
    endpoint: str = "api/v1/lineage"
    api_key: str | FileText | None = field(default=None, repr=False)
    namespace: str = "outbox"
    interval: Duration = 60.0
    timeout: Duration = 5.0
    kafka: Mapping[str, str | FileText | list[str]] = field(default_factory=dict, repr=False, metadata=GIVEN)
    topics: Sequence[str] = field(default=("*",), metadata=GIVEN)
    dataset: Callable[[], tuple[str, str]] = field(repr=False, metadata=GIVEN)

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise ConfigError("'url' is http:// or https://, a server, and a path: a key is 'apiKey'")
        if self.timeout <= 0:
            raise ConfigError("'timeout' is more than nothing")

    @property
    def outputs(self) -> Sequence[tuple[str, str]]:
        """Namespace and name of each topic that is known."""
        servers = self.kafka.get("bootstrap.servers", "localhost:9092")
        first = present_text(servers[0] if isinstance(servers, list) else servers).partition(",")[0].strip()
        server = first.rpartition("://")[2]
        where = server if re.search(r":\d+$", server) else f"{server}:9092"
        return [(f"kafka://{where}", topic) for topic in self.topics if not _PATTERN.search(topic)]
