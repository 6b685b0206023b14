"""``manage.py ship``: consumes the events of orders, and ships what was ordered."""

import json
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Message
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection, transaction
from outbox_api.application.inbox import Inbox

from store.models import Shipment

inbox = Inbox("shipping")


@transaction.atomic
def ship(message: Message) -> None:
    """Ships an order once, although its event may arrive more than once."""
    if inbox.first(connection, Inbox.id_of(message.headers())):
        event = json.loads(message.value() or b"")
        Shipment.objects.create(order=event["order"], goods=event["goods"])


class Command(BaseCommand):
    help = "Ships what was ordered, until Ctrl-C."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--most", type=int, help="end after so many events")

    def handle(self, *_: object, most: int | None, **__: object) -> None:
        own = {"group.id": "shipping", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with closing(Consumer({**settings.KAFKA, **own})) as consumer:
            consumer.subscribe([settings.ORDERS_TOPIC])
            done = 0
            while most is None or done < most:
                message = consumer.poll(1.0)
                if message is None or message.error():
                    continue
                ship(message)
                consumer.commit(
                    message=message
                )  # after the transaction: nothing is lost, and it may come again
                done += 1
                self.stdout.write(f"shipped to {(message.key() or b'').decode()}")
