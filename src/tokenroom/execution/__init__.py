"""Many independent questions answered by several workers, kept as they are answered."""
