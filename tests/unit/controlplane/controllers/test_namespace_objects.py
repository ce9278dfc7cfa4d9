"""ConfigMap `kube-root-ca.crt`: what is published in each namespace, and what of a file is fit for it."""

from pathlib import Path

import pytest
from workload_cluster import Workbench

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, NAMESPACE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.namespace_objects import ROOT_CA, root_ca
from kdns.controlplane.controllers.table import controllers_of
from kdns.controlplane.server.io.secure_serving import certificates
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.listing import ListOptions

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
DATA = {"ca.crt": PEM}


@pytest.fixture
def cluster() -> Workbench:
    made = Workbench(controllers=(root_ca(PEM),))
    made.make(NAMESPACE, {"metadata": {"name": "kube-system"}})
    made.settle()
    return made


def published(cluster: Workbench) -> dict[str, Json]:
    return {
        obj["metadata"]["namespace"]: obj["data"]
        for obj in cluster.api.list(Request(CONFIG_MAP), ListOptions(field_selector=f"metadata.name={ROOT_CA}")).items
    }


def test_every_namespace_gets_it_and_gets_it_back(cluster: Workbench) -> None:
    first = published(cluster)
    assert first["default"] == first["kube-system"] == DATA
    cluster.make(NAMESPACE, {"metadata": {"name": "shop"}})
    cluster.settle()
    assert published(cluster) == {**first, "shop": DATA}
    cluster.api.delete(Request(CONFIG_MAP, "shop", ROOT_CA))
    cluster.settle()
    assert published(cluster) == {**first, "shop": DATA}


def test_other_data_is_mended_and_the_rest_stays(cluster: Workbench) -> None:
    changed = cluster.get(CONFIG_MAP, ROOT_CA)
    changed["metadata"]["labels"] = {"by": "hand"}
    cluster.put(CONFIG_MAP, {**changed, "data": {"ca.crt": "other", "more": "x"}})
    cluster.make(CONFIG_MAP, {"metadata": {"name": "mine"}, "data": {"ca.crt": "mine"}})
    cluster.settle()
    mended = cluster.get(CONFIG_MAP, ROOT_CA)
    assert (mended["data"], mended["metadata"]["labels"]) == (DATA, {"by": "hand"})
    assert cluster.get(CONFIG_MAP, "mine")["data"] == {"ca.crt": "mine"}


def test_a_namespace_that_goes_gets_none(cluster: Workbench) -> None:
    cluster.make(NAMESPACE, {"metadata": {"name": "shop", "finalizers": ["a/b"]}})
    cluster.settle()
    cluster.delete(NAMESPACE, "shop")
    cluster.settle()
    assert "shop" not in published(cluster)


@pytest.mark.parametrize(("certificate", "there"), [(PEM, True), ("", False)])
def test_it_runs_where_the_api_has_certificates(certificate: str, there: bool) -> None:
    config = ClusterConfig(root_ca=certificate)
    assert any(each.name == "root-ca-certificate-publisher" for each in controllers_of(config, lambda _: 0)) is there


def test_keys_and_comments_are_not_published(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"
    path = tmp_path / "tls.pem"
    path.write_bytes(b"Bag \xc3\xa4\n" + (PEM + key + PEM).encode())
    assert certificates(str(path)) == PEM + PEM
