"""HTTP sites of a process: health, metrics, profiling."""
