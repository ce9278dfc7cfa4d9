"""KubeProxyConfiguration as short text."""

import yaml

from kdns.proxy.settings.document import decoded
from kdns.proxy.settings.settings import Settings
from kdns.proxy.settings.validation import problems

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
POSITIVE = "must be greater than 0"
ADDRESSES = "must be a valid CIDR, or one of primary, localhost, all"
BIT = "must be within the range [0, 31]"


def read(text: str) -> Settings:
    settings, mistakes = decoded({**HEAD, **(yaml.safe_load(text) or {})})
    assert not mistakes
    return settings


def said(settings: Settings) -> list[str]:
    return [str(problem) for problem in problems(settings)]
