"""Measurements beside a run: what a table lacks, measured again or for the first time."""
