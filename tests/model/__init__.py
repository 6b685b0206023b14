"""An exhaustive model of exactly-once delivery: every history of a small world, see docs/model.md."""
