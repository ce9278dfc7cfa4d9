"""Objects with the fields that causes need, and that nothing else does."""

from __future__ import annotations

from kdns.cluster.objects import Pod, PodStatus, Service, ServiceSpec, Slim


class SelectingSpec(ServiceSpec, frozen=True):
    """spec of a Service, with its selector."""

    selector: dict[str, str] | None = None


class SelectingService(Service, frozen=True):
    """v1 Service, with its selector."""

    spec: SelectingSpec = SelectingSpec()


class PodCondition(Slim, frozen=True):
    """status.conditions[] of a Pod."""

    type: str
    status: str = ""


class ObservedStatus(PodStatus, frozen=True):
    """status of a Pod, with its conditions."""

    conditions: tuple[PodCondition, ...] | None = ()

    @property
    def is_ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.conditions or ())


class ResolverOption(Slim, frozen=True):
    """spec.dnsConfig.options[] of a Pod."""

    name: str = ""
    value: str | None = None


class ResolverConfig(Slim, frozen=True):
    """spec.dnsConfig of a Pod."""

    searches: tuple[str, ...] | None = ()
    options: tuple[ResolverOption, ...] | None = ()


class PodSpec(Slim, frozen=True):
    """The fields of spec that a Pod's resolver has."""

    dns_policy: str = "ClusterFirst"
    dns_config: ResolverConfig | None = None
    host_network: bool = False


class ObservedPod(Pod, frozen=True):
    """v1 Pod, with its conditions and its resolver."""

    status: ObservedStatus = ObservedStatus()
    spec: PodSpec = PodSpec()
