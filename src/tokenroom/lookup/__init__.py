"""Look-up tables for any models and GPUs, and the recipe from lengths to settings."""
