"""librdkafka's clients, as the publisher and the elector NELI use them.

``settings`` can be imported without the Kafka client; the other modules import it.
"""
