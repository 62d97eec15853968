"""Tiny models that measure a version of the package anew: what it drops, what it fuses, what it cannot import."""
