"""A serving engine in virtual time: its scheduler, its KV blocks and the requests it serves."""
