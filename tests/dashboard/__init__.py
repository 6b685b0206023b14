"""The dashboard of ``deploy/`` in a real Grafana, with pictures of it."""
