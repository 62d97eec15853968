"""Benchmarks: what a budget speaks of is measured here, one child process per contender."""
