"""Several outboxes in one process: a harvest for each, and leaders that spread over processes."""
