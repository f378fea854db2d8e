"""What threads of whole clusters do to shared memory, as `counts` follows them without a GPU."""
