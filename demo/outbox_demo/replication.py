"""How the databases of the demonstration of several clusters replicate their outboxes to each other.

docs/multi-cluster.md explains it, and has the same statements.
"""

SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "10",
    "max_wal_senders": "10",
    "max_logical_replication_workers": "8",
    "wal_retrieve_retry_interval": "1s",
    "max_slot_wal_keep_size": "20GB",
}
"""Settings of every server."""

PUBLISH = """\
CREATE PUBLICATION outbox_changes
    FOR TABLE outbox (id, create_time, kafka_topic, kafka_key, kafka_value,
                      kafka_header_keys, kafka_header_values, cluster_id)
    WITH (publish = 'insert, delete');
"""
"""Executed on each server."""

SUBSCRIBE = """\
CREATE SUBSCRIPTION outbox_${OTHER}_to_${OWN} CONNECTION '${SOURCE}'
    PUBLICATION outbox_changes WITH (origin = none, copy_data = false);
"""
"""Executed on each server for each other one."""
