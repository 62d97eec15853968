"""Bugs to plant in the MLX side of gate A0, and where each must be found."""

from parity.mutations import model, training  # noqa: F401 - they register their bugs
from parity.mutations.registry import MUTATIONS, DoesNotApplyError, Mutation

__all__ = ["MUTATIONS", "DoesNotApplyError", "Mutation"]
