"""`python -m mlx_sentis`: the command line, for launchers that start Python itself."""

import cli

if __name__ == "__main__":
    cli.main(prog_name="mlx-sentis")
