"""How an outbox plugin is proven: real services, fixtures, and the conformance suites."""
