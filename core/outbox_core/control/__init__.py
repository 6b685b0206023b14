"""The control channel, over which lane groups report to their leader and receive orders."""
