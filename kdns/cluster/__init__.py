"""The objects of a cluster: slim objects, their indexed state, and the changes of that state.

It knows the Kubernetes API and nothing that is computed from it.
Begin with `state`; `io/reflector` keeps it equal to an API server.
"""
