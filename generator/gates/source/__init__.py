"""The static gate: what a kernel's source may say, read before it is compiled."""
