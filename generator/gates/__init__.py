"""Gates: what a kernel must pass before any timing of it counts. Each module is one gate with a
name."""
