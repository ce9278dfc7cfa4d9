"""What zones need of the world: their files, and exchanges with primaries and secondaries."""
