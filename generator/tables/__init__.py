"""From measurements to a table: who is proven, and which kernel a row names."""
