"""The contracts of the six seams, and what they exchange."""
