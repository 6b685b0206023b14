"""``outbox status --watch`` with keys, on a terminal; needs textual, which an extra installs."""
