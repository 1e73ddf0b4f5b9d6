"""How right the predictions are: rows of what engines printed, beside what tokenroom says."""
