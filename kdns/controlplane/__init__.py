"""A cluster without a cluster: the Kubernetes API that Services need, with its storage, controllers and manifests.

It decides without input and output; `server/io`, `storage/io` and `io` have the sockets and files.
Begin with `server/registry`, where each verb starts, and `kinds/strategy`, a row for each kind with rules of its own.
"""
