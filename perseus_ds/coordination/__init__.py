"""Agreement between the ranks: the bus, the shared plans, stragglers, and the response to them."""
