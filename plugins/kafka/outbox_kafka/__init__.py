"""Kafka publisher of outbox."""
