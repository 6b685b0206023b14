"""MySQL and MariaDB dialect of outbox."""
