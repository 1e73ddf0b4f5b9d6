"""Deployments that serve the same requests, side by side."""
