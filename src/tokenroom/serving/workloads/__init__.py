"""Workloads: what arrives when and how long it is, from a trace or drawn by a description."""
