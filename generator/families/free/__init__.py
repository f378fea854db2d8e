"""Kernels of free source: CUDA that a person or a model wrote, beside those that families make."""
