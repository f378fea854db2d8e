"""One evaluator behind three doors: what a proposed kernel is worth, and why, in words."""

#: How words name a device of an evaluator (`places.open_device`).
DEVICES = '"gpu", "gpu:1", "sim:SEED", "replay:FILE" (of an H200) or "none".'
