"""Allocation policies in the abstract: one pool, one workload, no engine's further habits."""
