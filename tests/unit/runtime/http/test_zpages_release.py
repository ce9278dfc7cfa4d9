"""One release of Kubernetes is named everywhere."""

from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.runtime.http.zpages import EMULATED


def test_the_pages_of_the_proxy_name_the_release_of_the_schema() -> None:
    assert KUBERNETES_VERSION.rpartition(".")[0] == EMULATED
