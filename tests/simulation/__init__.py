"""A whole outbox in virtual time: real decisions between a database, a broker and an election that fail."""
