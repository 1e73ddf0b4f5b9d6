"""TensorRT-LLM: the PyTorch backend, and the pool rule of the older engine backend."""
