"""One module per contender, each with `measure(...)`; they run in child processes and import at the top."""
