"""Access to GPUs: clocks, energy, and a keeper process that always resets the clocks."""
