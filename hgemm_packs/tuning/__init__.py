"""Tables for the GPU at hand: shapes that a program used, the pack's kernels measured against torch
on these, and the local table that follows. Called by users and by the command line."""
