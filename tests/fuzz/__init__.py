"""Targets that feed damaged input to the program; each runs by hand at length and, seeded and short, in the suite."""
