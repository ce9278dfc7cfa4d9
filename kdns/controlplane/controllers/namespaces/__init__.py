"""The objects of every namespace: ServiceAccount default and ConfigMap kube-root-ca.crt."""
