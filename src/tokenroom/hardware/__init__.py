"""Accelerators and nodes: what GPUs there are and what their figures are."""
