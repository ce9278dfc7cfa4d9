"""A Kubernetes API as a client sees it: kubeconfig, credentials, list and watch."""
