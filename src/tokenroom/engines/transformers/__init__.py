"""Plain transformers: no pool, one static batch, a cache that grows or is laid out at once."""
