"""llama.cpp: where it puts a model's tensors, caches and buffers, and what does not fit a GPU."""
