"""Data shaping: rows are read, rendered by the model's own template, masked, split, checked and written."""
