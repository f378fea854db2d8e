"""What is measured and published. Run from the repository: `python -m benchmarks.ROOM.SCRIPT`."""
