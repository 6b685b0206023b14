"""What changes records between the outbox and the broker; the drivers that come with core."""
