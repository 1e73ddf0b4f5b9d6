"""SGLang: its settings, defaults, token pools and memory."""
