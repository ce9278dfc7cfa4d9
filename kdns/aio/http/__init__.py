"""HTTP sites beside the REST API: health, metrics, profiling."""
