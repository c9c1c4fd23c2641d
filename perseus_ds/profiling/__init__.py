"""Profiling in the live training: times, energies and blocking power per instruction and clock."""
