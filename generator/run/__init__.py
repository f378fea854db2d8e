"""A run from its search to confirmed kernels, and one candidate through every gate."""
