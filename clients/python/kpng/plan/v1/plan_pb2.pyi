from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Family(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAMILY_UNSPECIFIED: _ClassVar[Family]
    FAMILY_IPV4: _ClassVar[Family]
    FAMILY_IPV6: _ClassVar[Family]

class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROTOCOL_UNSPECIFIED: _ClassVar[Protocol]
    PROTOCOL_TCP: _ClassVar[Protocol]
    PROTOCOL_UDP: _ClassVar[Protocol]
    PROTOCOL_SCTP: _ClassVar[Protocol]

class FrontendKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FRONTEND_KIND_UNSPECIFIED: _ClassVar[FrontendKind]
    FRONTEND_KIND_CLUSTER_IP: _ClassVar[FrontendKind]
    FRONTEND_KIND_EXTERNAL_IP: _ClassVar[FrontendKind]
    FRONTEND_KIND_LOAD_BALANCER_IP: _ClassVar[FrontendKind]
    FRONTEND_KIND_NODE_PORT: _ClassVar[FrontendKind]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_BALANCE: _ClassVar[Action]
    ACTION_REFUSE: _ClassVar[Action]
    ACTION_DROP: _ClassVar[Action]

class EndpointSet(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDPOINT_SET_UNSPECIFIED: _ClassVar[EndpointSet]
    ENDPOINT_SET_CLUSTER: _ClassVar[EndpointSet]
    ENDPOINT_SET_LOCAL: _ClassVar[EndpointSet]
FAMILY_UNSPECIFIED: Family
FAMILY_IPV4: Family
FAMILY_IPV6: Family
PROTOCOL_UNSPECIFIED: Protocol
PROTOCOL_TCP: Protocol
PROTOCOL_UDP: Protocol
PROTOCOL_SCTP: Protocol
FRONTEND_KIND_UNSPECIFIED: FrontendKind
FRONTEND_KIND_CLUSTER_IP: FrontendKind
FRONTEND_KIND_EXTERNAL_IP: FrontendKind
FRONTEND_KIND_LOAD_BALANCER_IP: FrontendKind
FRONTEND_KIND_NODE_PORT: FrontendKind
ACTION_UNSPECIFIED: Action
ACTION_BALANCE: Action
ACTION_REFUSE: Action
ACTION_DROP: Action
ENDPOINT_SET_UNSPECIFIED: EndpointSet
ENDPOINT_SET_CLUSTER: EndpointSet
ENDPOINT_SET_LOCAL: EndpointSet

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("reset", "node", "service", "delete", "sync")
    RESET_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    reset: Reset
    node: NodePlan
    service: ServicePlan
    delete: ServiceRef
    sync: Sync
    def __init__(self, reset: _Optional[_Union[Reset, _Mapping]] = ..., node: _Optional[_Union[NodePlan, _Mapping]] = ..., service: _Optional[_Union[ServicePlan, _Mapping]] = ..., delete: _Optional[_Union[ServiceRef, _Mapping]] = ..., sync: _Optional[_Union[Sync, _Mapping]] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sync(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ServiceRef(_message.Message):
    __slots__ = ("namespace", "name", "family")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    family: Family
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., family: _Optional[_Union[Family, str]] = ...) -> None: ...

class NodePlan(_message.Message):
    __slots__ = ("family", "pod_cidr", "pod_interface", "pod_interface_prefix", "is_all_node_port_addresses", "node_port_addresses", "node_address", "service_cidrs")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    POD_CIDR_FIELD_NUMBER: _ClassVar[int]
    POD_INTERFACE_FIELD_NUMBER: _ClassVar[int]
    POD_INTERFACE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    IS_ALL_NODE_PORT_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    NODE_PORT_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    NODE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_CIDRS_FIELD_NUMBER: _ClassVar[int]
    family: Family
    pod_cidr: str
    pod_interface: str
    pod_interface_prefix: str
    is_all_node_port_addresses: bool
    node_port_addresses: _containers.RepeatedScalarFieldContainer[str]
    node_address: str
    service_cidrs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, family: _Optional[_Union[Family, str]] = ..., pod_cidr: _Optional[str] = ..., pod_interface: _Optional[str] = ..., pod_interface_prefix: _Optional[str] = ..., is_all_node_port_addresses: bool = ..., node_port_addresses: _Optional[_Iterable[str]] = ..., node_address: _Optional[str] = ..., service_cidrs: _Optional[_Iterable[str]] = ...) -> None: ...

class ServicePlan(_message.Message):
    __slots__ = ("namespace", "name", "family", "ports", "hairpin", "health_check", "whole")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    HAIRPIN_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    family: Family
    ports: _containers.RepeatedCompositeFieldContainer[ServicePort]
    hairpin: _containers.RepeatedScalarFieldContainer[str]
    health_check: HealthCheck
    whole: WholeAddress
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., family: _Optional[_Union[Family, str]] = ..., ports: _Optional[_Iterable[_Union[ServicePort, _Mapping]]] = ..., hairpin: _Optional[_Iterable[str]] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ..., whole: _Optional[_Union[WholeAddress, _Mapping]] = ...) -> None: ...

class WholeAddress(_message.Message):
    __slots__ = ("affinity_seconds", "cluster", "local", "answering", "frontends")
    AFFINITY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_FIELD_NUMBER: _ClassVar[int]
    FRONTENDS_FIELD_NUMBER: _ClassVar[int]
    affinity_seconds: int
    cluster: _containers.RepeatedScalarFieldContainer[str]
    local: _containers.RepeatedScalarFieldContainer[str]
    answering: _containers.RepeatedScalarFieldContainer[str]
    frontends: _containers.RepeatedCompositeFieldContainer[Frontend]
    def __init__(self, affinity_seconds: _Optional[int] = ..., cluster: _Optional[_Iterable[str]] = ..., local: _Optional[_Iterable[str]] = ..., answering: _Optional[_Iterable[str]] = ..., frontends: _Optional[_Iterable[_Union[Frontend, _Mapping]]] = ...) -> None: ...

class HealthCheck(_message.Message):
    __slots__ = ("port", "local_endpoints")
    PORT_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    port: int
    local_endpoints: int
    def __init__(self, port: _Optional[int] = ..., local_endpoints: _Optional[int] = ...) -> None: ...

class ServicePort(_message.Message):
    __slots__ = ("name", "protocol", "port", "affinity_seconds", "cluster", "local", "answering", "frontends")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_FIELD_NUMBER: _ClassVar[int]
    FRONTENDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    protocol: Protocol
    port: int
    affinity_seconds: int
    cluster: _containers.RepeatedCompositeFieldContainer[Endpoint]
    local: _containers.RepeatedCompositeFieldContainer[Endpoint]
    answering: _containers.RepeatedCompositeFieldContainer[Endpoint]
    frontends: _containers.RepeatedCompositeFieldContainer[Frontend]
    def __init__(self, name: _Optional[str] = ..., protocol: _Optional[_Union[Protocol, str]] = ..., port: _Optional[int] = ..., affinity_seconds: _Optional[int] = ..., cluster: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., local: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., answering: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., frontends: _Optional[_Iterable[_Union[Frontend, _Mapping]]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("address", "port")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    address: str
    port: int
    def __init__(self, address: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Frontend(_message.Message):
    __slots__ = ("kind", "address", "port", "sources", "pod", "node", "outside")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    kind: FrontendKind
    address: str
    port: int
    sources: _containers.RepeatedScalarFieldContainer[str]
    pod: Route
    node: Route
    outside: Route
    def __init__(self, kind: _Optional[_Union[FrontendKind, str]] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., sources: _Optional[_Iterable[str]] = ..., pod: _Optional[_Union[Route, _Mapping]] = ..., node: _Optional[_Union[Route, _Mapping]] = ..., outside: _Optional[_Union[Route, _Mapping]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("action", "set", "is_masqueraded")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    IS_MASQUERADED_FIELD_NUMBER: _ClassVar[int]
    action: Action
    set: EndpointSet
    is_masqueraded: bool
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., set: _Optional[_Union[EndpointSet, str]] = ..., is_masqueraded: bool = ...) -> None: ...
