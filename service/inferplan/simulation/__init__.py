"""Plays an engine's scheduler step by step, for one replica or a fleet. Knows numbers, not models or accelerators."""
