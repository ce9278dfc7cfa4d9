"""A control plane in this process: the store, the API, the controller manager and the manifests that are followed."""
