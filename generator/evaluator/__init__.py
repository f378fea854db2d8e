"""One evaluator behind three doors: what a proposed kernel is worth, and why, in words."""
