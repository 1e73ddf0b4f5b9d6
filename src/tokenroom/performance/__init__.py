"""How long one step of an engine takes, and what a load sees of it."""
