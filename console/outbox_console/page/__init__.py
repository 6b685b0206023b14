"""The operator's page: what it answers, and how it is kept up to date."""
