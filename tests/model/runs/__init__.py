"""An exhaustive model of runs: every history of a small world, decided by the product's own code."""
