"""The `kubernetes` directive: its stanza, and the records of Services, endpoints and Pods.

It knows the cluster's state and the Kubernetes DNS specification.
Begin with `plugin`; `zone` finds a name and `service` makes its records.
"""
