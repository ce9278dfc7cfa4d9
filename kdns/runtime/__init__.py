"""Services of this machine for every shell: connections, tasks, signals, metrics, programs, HTTP sites and files.

It knows neither DNS nor Kubernetes, and is the one room that is input and output by nature.
Begin with `connections`, the only place that accepts them, and `tasks`.
"""
