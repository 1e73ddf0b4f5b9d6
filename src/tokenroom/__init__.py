"""How much room for tokens GPUs have."""
