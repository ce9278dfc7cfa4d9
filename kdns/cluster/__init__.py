"""The objects of a cluster: slim objects, and State with its indexes and changes.

It knows the Kubernetes API and nothing that is computed from it.
Begin with `state`; `io/reflector` syncs it with an API server.
"""
