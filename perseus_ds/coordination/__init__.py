"""What the ranks agree on: the bus between them, the plans they hold, who is slow, what is answered."""
