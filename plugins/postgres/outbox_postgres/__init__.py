"""PostgreSQL dialect of outbox."""
