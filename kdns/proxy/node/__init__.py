"""What a node serves and says about its dataplane: health checks, metrics, Events and host settings.

It knows the sync runner, and no mode.
Begin with `io/health`.
"""
