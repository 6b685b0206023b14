"""What applications use: stasher, inbox, schemas, SQLAlchemy, fixtures; it finds drivers, too."""
