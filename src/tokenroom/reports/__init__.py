"""Results as text, JSON and plots, in English and Chinese."""
