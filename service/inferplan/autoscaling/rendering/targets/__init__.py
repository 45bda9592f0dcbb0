"""One module a target; each holds its `TARGET`."""
