"""What other programs may know of this process: figures of its outboxes, as metrics of OpenTelemetry."""
