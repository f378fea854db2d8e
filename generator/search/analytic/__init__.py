"""Times that formulas predict, for searches that start before anything is measured."""
