"""Authority over zones, for the directives `file`, `auto`, `records` and `secondary`."""
