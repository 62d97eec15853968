"""Everything that imports MLX. Importing this package first puts a fast BLAS under it (see `mlx_sentis.blas`)."""

from mlx_sentis.blas import activate

BLAS = activate()
