"""The `kubernetes` directive: its grammar, and the records of Services, endpoints and Pods.

It implements the Kubernetes DNS specification over the cluster's State.
Begin with `plugin`; `zone` looks a name up, `service` makes its records.
"""
