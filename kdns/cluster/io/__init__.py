"""A Kubernetes API as a client sees it: kubeconfig, credentials, list and watch, and the clusters that are followed."""
