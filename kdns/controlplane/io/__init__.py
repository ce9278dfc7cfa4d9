"""A control plane in this process: the store, the API, the controllers and the manifests that are followed.

Begin with `local_cluster`, which puts it together.
"""
