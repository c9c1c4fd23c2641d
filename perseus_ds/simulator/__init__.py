"""Virtual GPUs beneath pynvml, for machines without GPUs: only the driver is simulated."""
