"""Models of times for problems that nobody measured: drawn, fitted, judged, written for packs."""
