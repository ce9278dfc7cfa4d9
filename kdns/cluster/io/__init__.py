"""The client of a Kubernetes API: kubeconfig, credentials, list and watch.

Begin with `informer`, which watches all kinds of one API; `reflector` watches one kind.
"""
