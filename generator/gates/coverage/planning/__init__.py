"""Sizes that a kernel is run on beside the tested ones."""
