"""A run's folder on disk and what was written there, as plain values. Measures nothing."""
