"""Label noise as functions over arrays; `registry.inject` makes the labels artifact, which `labels` reads."""
