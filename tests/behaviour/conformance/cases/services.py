"""Services: addresses, ports, and the fields that depend on the type."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import SERVICES, case, merge, post, service

CASES = [
    case(
        "a headless service gets its defaults", post(SERVICES, service(clusterIP="None", selector={"a": "b"}))
    ),
    *(
        case(
            f"a headless service without a selector {what}",
            post(SERVICES, service(clusterIP="None", **before)),
            merge(f"{SERVICES}/one", {"spec": after}),
        )
        for what, before, after in (
            ("that gets one is rejected", {}, {"selector": {"a": "b"}}),
            ("that gets a port is kept", {}, {"ports": [{"port": 81}]}),
            (
                "that gets one with a single stack",
                {},
                {"selector": {"a": "b"}, "ipFamilyPolicy": "SingleStack"},
            ),
            (
                "that gets one with a single stack and family",
                {},
                {"selector": {"a": "b"}, "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]},
            ),
        )
    ),
    case("a dual-stack service is rejected", post(SERVICES, service(ipFamilyPolicy="RequireDualStack"))),
    case("a dual-stack service is preferred", post(SERVICES, service(ipFamilyPolicy="PreferDualStack"))),
    case("an IPv6 service is rejected", post(SERVICES, service(ipFamilies=["IPv6"]))),
    case("a service gets an address", post(SERVICES, service())),
    case("a node port service gets a port", post(SERVICES, service(type="NodePort"))),
    case(
        "an external name service gets no address",
        post(SERVICES, service(type="ExternalName", externalName="example.com", ports=[])),
    ),
    case("a service without ports is rejected", post(SERVICES, service(ports=[]))),
    case(
        "a service with two unnamed ports is rejected",
        post(SERVICES, service(ports=[{"port": 80}, {"port": 81}])),
    ),
    case("a service with a bad port is rejected", post(SERVICES, service(ports=[{"port": 0}]))),
    case("a service with an unknown type is rejected", post(SERVICES, service(type="Magic"))),
    case(
        "a service's address is immutable",
        post(SERVICES, service()),
        merge(f"{SERVICES}/one", {"spec": {"clusterIP": "10.0.0.99", "clusterIPs": ["10.0.0.99"]}}),
    ),
    *(
        case(
            f"a {before} service that becomes {after} keeps what that type has",
            post(
                SERVICES,
                service(type=before, **({} if before == "ClusterIP" else {"externalTrafficPolicy": "Local"})),
            ),
            merge(f"{SERVICES}/one", {"spec": {"type": after}}),
        )
        for before in ("ClusterIP", "NodePort", "LoadBalancer")
        for after in ("ClusterIP", "NodePort", "LoadBalancer")
        if before != after
    ),
    *(
        case(
            f"a load balancer's {field} when it becomes a {after} service",
            post(SERVICES, service(type="LoadBalancer", **{field: value})),
            merge(f"{SERVICES}/one", {"spec": {"type": after}}),
        )
        for field, value, after in (
            ("loadBalancerClass", "a.example/b", "ClusterIP"),
            ("allocateLoadBalancerNodePorts", False, "NodePort"),
            ("loadBalancerSourceRanges", ["10.0.0.0/8"], "ClusterIP"),
        )
    ),
    case(
        "a node port service becomes an external name",
        post(SERVICES, service(type="NodePort")),
        merge(f"{SERVICES}/one", {"spec": {"type": "ExternalName", "externalName": "a.example"}}),
    ),
    case(
        "an external name becomes a service with an address",
        post(SERVICES, service(type="ExternalName", externalName="a.example")),
        merge(f"{SERVICES}/one", {"spec": {"type": "ClusterIP"}}),
    ),
    case(
        "a load balancer that leaves the local policy gives its health check port back",
        post(
            SERVICES, service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=31234)
        ),
        merge(f"{SERVICES}/one", {"spec": {"externalTrafficPolicy": "Cluster"}}),
    ),
    case(
        "a load balancer's class is immutable",
        post(SERVICES, service(type="LoadBalancer", loadBalancerClass="a.example/b")),
        merge(f"{SERVICES}/one", {"spec": {"loadBalancerClass": "a.example/c"}}),
    ),
    *(
        case(f"a cluster service with {field} is rejected", post(SERVICES, service(**{field: value})))
        for field, value in (
            ("externalTrafficPolicy", "Local"),
            ("allocateLoadBalancerNodePorts", True),
            ("loadBalancerClass", "a.example/b"),
            ("loadBalancerSourceRanges", ["10.0.0.0/8"]),
            ("healthCheckNodePort", 31111),
        )
    ),
    case(
        "a load balancer with a bad source range is rejected",
        post(SERVICES, service(type="LoadBalancer", loadBalancerSourceRanges=["x"])),
    ),
    case(
        "a cluster service with an external name gets a warning",
        post(SERVICES, service(externalName="a.example")),
    ),
]
