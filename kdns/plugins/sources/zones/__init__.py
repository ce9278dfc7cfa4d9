"""Zones of files and primaries: what the directives `file`, `auto` and `secondary` share."""
