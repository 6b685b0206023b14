"""The harvester: MP/R, lanes, engines and the command line."""
