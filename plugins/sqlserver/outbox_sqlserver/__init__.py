"""SQL Server dialect of outbox."""
