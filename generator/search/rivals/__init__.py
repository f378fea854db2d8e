"""Searches that ours are compared with, and the comparison on recordings."""
