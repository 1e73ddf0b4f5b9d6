"""What two articles on GPU memory for LLM serving claim, each beside what the library computes."""
