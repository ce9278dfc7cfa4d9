"""Where a command that reads a cluster once gets its objects."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from kdns.cluster.io.kubeconfig import paths_of
from kdns.cluster.source import Source
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.errors import InputError


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Manifests that `kdns up` would apply to `cluster`, or an API server by URL or kubeconfig; by default
    kubectl's.
    """

    manifests: tuple[Path, ...] = ()
    server: str = ""
    kubeconfig: str = ""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    @property
    def is_default(self) -> bool:
        return not (self.manifests or self.server or self.kubeconfig)

    @property
    def api(self) -> Source:
        """Raises InputError if kubectl's kubeconfig is needed, and none exists."""
        return Source(kubeconfig=default_kubeconfig() if self.is_default else self.kubeconfig, endpoint=self.server)


def default_kubeconfig() -> str:
    """The files of $KUBECONFIG, else ~/.kube/config. Raises InputError if none exists."""
    paths = _default_paths()
    if has_default_kubeconfig():
        return paths
    raise InputError(f"no kubeconfig at {paths}: give --kubeconfig FILE, --server URL or --manifests PATH")


def has_default_kubeconfig() -> bool:
    return any(map(os.path.isfile, paths_of(_default_paths())))


def _default_paths() -> str:
    return os.environ.get("KUBECONFIG", "").strip(os.pathsep) or "~/.kube/config"
