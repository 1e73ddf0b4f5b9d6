"""Engine policies: how much memory each engine takes, and for what."""
