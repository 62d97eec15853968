"""Predicates of single rules, by subject; importing this package registers them."""

from __future__ import annotations

from converters.scan.checks import resize, shapes, types, values

__all__ = ["resize", "shapes", "types", "values"]
