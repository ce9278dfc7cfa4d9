"""The Kubernetes API over HTTP, as kube-apiserver serves it."""
