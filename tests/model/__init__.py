"""An exhaustive model of deliveries: every history of a small world, see docs/model.md."""
