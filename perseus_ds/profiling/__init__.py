"""Profiling in the live training: time, energy and blocking power per instruction and clock."""
