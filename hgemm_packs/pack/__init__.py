"""A pack on disk: its manifest read and checked, found, known by identity. Imports no torch."""
