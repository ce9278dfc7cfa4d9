"""`kdns explain` and `kdns trace` over the objects of an API server."""

from click.testing import CliRunner

from kdns import testing
from kdns.cli.commands.explain import explain
from kdns.cli.commands.trace import trace

MANIFESTS = """\
apiVersion: v1
kind: Service
metadata: {name: sel}
spec: {selector: {app: webb}, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web}}
spec: {containers: [{name: c, image: x}]}
"""


def test_objects_of_a_server_are_explained() -> None:
    with testing.cluster(MANIFESTS) as cluster:
        result = CliRunner().invoke(explain, ["--kubeconfig", str(cluster.kubeconfig), "--pod", "default/web-0", "sel"])
    assert 'selector app=webb matches 0 of 1 Pod in "default"; 1 has app=web' in result.output
    assert "Try: kubectl set selector service -n default sel app=web" in result.output
    assert result.exit_code == 0, result.output


def test_a_trace_says_why_there_are_no_endpoints() -> None:
    """The Pods of the Service's namespace are listed when they matter."""
    words = ["--from", "10.244.0.9", "--to", "sel:http"]
    with testing.cluster(MANIFESTS) as cluster:
        result = CliRunner().invoke(trace, ["--kubeconfig", str(cluster.kubeconfig), *words])
    assert result.exit_code == 0, result.output
    reason = 'the Service has no endpoints: selector app=webb matches 0 of 1 Pod in "default"; 1 has app=web'
    assert f"  {reason}\nTry: kubectl set selector service -n default sel app=web\n" in result.output
