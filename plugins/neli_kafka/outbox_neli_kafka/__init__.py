"""NELI leader election on Kafka for outbox."""
