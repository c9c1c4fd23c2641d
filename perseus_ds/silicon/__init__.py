"""Checks on one GPU, by reading only; the same experiments run on a virtual GPU in virtual time."""
