"""Files of KubeProxyConfigurations."""
