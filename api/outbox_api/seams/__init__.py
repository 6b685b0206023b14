"""The contracts of the seven seams, and what they exchange."""
