"""Code that the Kafka publisher and the elector NELI share.

``settings`` and ``properties`` can be imported without the Kafka client; the other modules import it.
"""
