"""GPUs as Perseus needs them: clocks, energy, and a keeper process that always gives the clocks back."""
