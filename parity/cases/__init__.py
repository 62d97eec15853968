"""Case files: what a run found out about one model, as a page whose every number names the record it comes from."""
