"""Prints what arrives."""

import os

from confluent_kafka import Consumer

consumer = Consumer(
    {"bootstrap.servers": os.environ["KAFKA"], "group.id": "printer", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["orders"])
print("waiting for orders", flush=True)
while True:
    message = consumer.poll(1.0)
    if message is not None and not message.error():
        key, value = message.key() or b"", message.value() or b""
        print(f"received: {key.decode()} {value.decode()}", flush=True)
