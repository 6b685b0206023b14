"""Makes each alarm of ``deploy/`` fire and clear by a real fault; ``python -m tests.alarms --help``."""
