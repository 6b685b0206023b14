"""Tables of other layouts: what their columns mean, and what becomes of a row."""
