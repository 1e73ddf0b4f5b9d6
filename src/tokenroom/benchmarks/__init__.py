"""What benchmark tools measured: one form for the outputs of all of them."""
