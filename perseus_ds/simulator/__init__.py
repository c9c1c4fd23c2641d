"""Virtual GPUs beneath pynvml, for machines without any: the driver is simulated, nothing above it."""
