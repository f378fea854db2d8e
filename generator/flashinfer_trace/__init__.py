"""FlashInfer-Trace, the format of the field for problems and kernels: definitions and workloads
come in as problems, rows of a table go out as solutions and traces.

The format is that of the package flashinfer-bench 0.1.2, which is not needed here. Code that a file
brings is never run: `reference` reads which product it is, or refuses it.
"""
