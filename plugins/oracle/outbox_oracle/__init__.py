"""Oracle dialect of outbox."""
