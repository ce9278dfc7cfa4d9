"""A Kubernetes API as a client sees it: kubeconfig, credentials, list and watch.

Begin with `informer`, which follows all kinds of one API; `reflector` follows one kind.
"""
