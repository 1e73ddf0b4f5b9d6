"""Memory formulas that hold for any engine."""
