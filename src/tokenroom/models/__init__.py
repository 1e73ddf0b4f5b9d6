"""Models: every source is read into one ModelSpec."""
