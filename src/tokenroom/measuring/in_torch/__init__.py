"""The part that imports PyTorch when it is loaded; everything else here does without it."""
