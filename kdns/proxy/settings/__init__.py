"""KubeProxyConfiguration and flags as settings, with every mistake at its place."""
