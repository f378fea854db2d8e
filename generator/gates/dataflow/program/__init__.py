"""A kernel's PTX as instructions, and what follows from it before any rule is asked."""
