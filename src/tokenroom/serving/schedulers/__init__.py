"""Schedulers of serving engines, a module an engine."""
