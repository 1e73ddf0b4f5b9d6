"""vLLM: its memory rules by version."""
