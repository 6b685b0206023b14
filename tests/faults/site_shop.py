"""The shop of a site: its topic has as many partitions and copies as the site's brokers need."""

from __future__ import annotations

from confluent_kafka import Message
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, but left out of its types

from .. import topics  # noqa: TID252 - pytest gives tests no absolute name
from ..databases import Database  # noqa: TID252 - pytest gives tests no absolute name
from ..shop import Shop  # noqa: TID252 - pytest gives tests no absolute name
from .brokers import Brokers


class SiteShop(Shop):
    """A shop with the brokers of a site."""

    def __init__(self, database: Database, brokers: Brokers, topic: str) -> None:
        self._setup = brokers.setup
        super().__init__(database, brokers.kafka, topic)

    def create_topic(self, largest_message: int | None = None, name: str | None = None) -> None:
        config = {} if largest_message is None else {"max.message.bytes": str(largest_message)}
        if self._setup.copies > 1:
            config["min.insync.replicas"] = "2"
        name = name or self.topic
        new = NewTopic(name, self._setup.partitions, self._setup.copies, config=config)
        self.admin.create_topics([new])[name].result(60)

    def delete_topic(self) -> None:
        """Deletes the topic."""
        self.admin.delete_topics([self.topic])[self.topic].result(60)

    def ends(self) -> dict[int, int]:
        return topics.ends(self.admin, self.topic, self._setup.partitions)

    def messages(self, topic: str | None = None) -> list[Message]:
        topic = topic or self.topic
        until = topics.ends(self.admin, topic, self._setup.partitions)
        return topics.messages(self.kafka.bootstrap, topic, until)
