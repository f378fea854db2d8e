"""How packs travel: Hub, cache, trust, lock file. Imported by those who ask for it alone."""
