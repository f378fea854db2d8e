"""A kernel's integers, computed for many threads of many launches at once."""
