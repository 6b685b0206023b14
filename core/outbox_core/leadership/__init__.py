"""What a leader and its lane groups tell each other, and how."""
