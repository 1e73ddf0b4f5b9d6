"""What servers and GPUs hold now, beside what was predicted."""
