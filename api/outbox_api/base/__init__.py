"""What all else is made of: records, their bounds, errors and findings."""
