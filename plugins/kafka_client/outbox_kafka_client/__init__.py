"""Code that the Kafka publisher and the elector NELI share.

``settings`` can be imported without the Kafka client; the other modules import it.
"""
