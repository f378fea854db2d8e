"""An adversary in the loop: faults planted in honest kernels of every family, and the share of
them that the gates catch.

`operators/` says what is planted, `draw` which one a number of a seed is, `judge` what the gates of
the CPU make of it, `on_gpu` those of a GPU, `run` all of them with a file of lines, `report` sums.
"""
