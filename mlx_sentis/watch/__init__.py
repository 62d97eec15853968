"""`mlx-sentis watch`: what a training's log says, as a page or a picture."""
