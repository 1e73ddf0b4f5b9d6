"""An engine's start-up log as a row of measurements."""
