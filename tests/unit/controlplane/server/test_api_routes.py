"""Tables of paths and Accept headers."""

import pytest
from object_api import refused
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NAMESPACE, NODE, POD, SERVICE
from kdns.controlplane.server.io.request import target
from kdns.controlplane.server.protobuf import MEDIA_TYPE as PROTOBUF
from kdns.controlplane.server.registry import Request
from kdns.controlplane.server.representation import Representation, representation, wants_aggregated_discovery

SLICES = "/apis/discovery.k8s.io/v1"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/api/v1/services", Request(SERVICE)),
        ("/api/v1/services/", Request(SERVICE)),
        ("/api/v1/namespaces", Request(NAMESPACE)),
        ("/api/v1/namespaces/x", Request(NAMESPACE, None, "x")),
        ("/api/v1/namespaces/x/status", Request(NAMESPACE, None, "x", "status")),
        ("/api/v1/namespaces/x/finalize", Request(NAMESPACE, None, "x", "finalize")),
        ("/api/v1/namespaces/x/services", Request(SERVICE, "x")),
        ("/api/v1/namespaces/x/services/web", Request(SERVICE, "x", "web")),
        ("/api/v1/namespaces/services/services", Request(SERVICE, "services")),
        ("/api/v1/namespaces/x/pods/p/status", Request(POD, "x", "p", "status")),
        ("/api/v1/nodes/n/status", Request(NODE, None, "n", "status")),
        (f"{SLICES}/endpointslices", Request(ENDPOINT_SLICE)),
        (f"{SLICES}/namespaces/x/endpointslices/s", Request(ENDPOINT_SLICE, "x", "s")),
    ],
)
def test_paths(path: str, wanted: Request) -> None:
    assert target(path, CATALOGUE, lambda _: None) == wanted


@pytest.mark.parametrize(
    "path",
    [
        "/", "/api", "/api/v1",
        "/api/v1/watch/services", "/api/v1/", "/api/v2/services", "/api/v1/endpointslices", "/apis/v1/services",
        "/api/v1/services/web", "/api/v1/namespaces/x/namespaces", "/api/v1/namespaces/x/nodes/n", "/api/v1//services",
        "/api/v1/namespaces/x/services/web/scale", "/api/v1/namespaces/x/services/web/status/more", "/api/v1/watch",
        "/apis/discovery.k8s.io/v1beta1/endpointslices", "/other/v1/services",
    ],
)  # fmt: skip
def test_paths_of_nobody(path: str) -> None:
    refused(404, "", target, path, CATALOGUE, lambda _: None)


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        ("application/json", Representation()),
        ("application/yaml", Representation("application/yaml")),
        (f"{PROTOBUF},application/json", Representation()),
        ("text/html,*/*", Representation()),
        (f"{PROTOBUF}, */*", Representation()),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/json", Representation()),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1", Representation("application/yaml", "Table")),
        ("application/yaml;stream=watch,application/json;stream=watch", Representation()),
        ("application/json;q=0.5, application/yaml", Representation("application/yaml")),
        ("application/yaml;q=0, */*;q=0.1", Representation()),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Representation(form="Table")),
        ("application/json;as=Table;g=meta.k8s.io;v=v1beta1", Representation(form="Table", version="v1beta1")),
        ("application/json;as=Table;g=else;v=v1,application/json", Representation()),
        ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Representation()),
        ("application/json;as=Chart;g=meta.k8s.io;v=v1,application/json", Representation()),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Representation(form="PartialObjectMetadataList"),
        ),
    ],
)
def test_accept(accept: str, wanted: Representation) -> None:
    assert representation(accept) == wanted


ACCEPTED = "only the following media types are accepted: "
AVAILABLE = "406: Not Acceptable\n\nAvailable representations: "
ALL = "application/json, application/yaml"
STREAMS = "application/json;stream=watch"


@pytest.mark.parametrize(
    ("accept", "streams", "message"),
    [
        ("text/html", False, f"{AVAILABLE}{ALL}"),
        ("application/*", False, f"{AVAILABLE}{ALL}"),
        ("text/html", True, f"{AVAILABLE}{ALL}, {STREAMS}"),
        ("application/json;q=0", False, f"{AVAILABLE}{ALL}"),
        ("application/json;as=Table;g=meta.k8s.io;v=v9", False, f"{ACCEPTED}{ALL}"),
        (PROTOBUF, False, f"{AVAILABLE}{ALL}"),
        (f"{PROTOBUF};stream=watch", True, f"{AVAILABLE}{ALL}, {STREAMS}"),
        ("application/yaml", True, f"{ACCEPTED}{STREAMS}"),
    ],
)
def test_nothing_acceptable(accept: str, message: str, *, streams: bool) -> None:
    assert refused(406, "", representation, accept, streams=streams).message == message


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (f"{AGGREGATED},application/json", True),
        (f"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,{AGGREGATED}", True),
        (f"application/json,{AGGREGATED}", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_aggregated_discovery(accept: str, wanted: bool) -> None:
    assert wants_aggregated_discovery(accept) is wanted
