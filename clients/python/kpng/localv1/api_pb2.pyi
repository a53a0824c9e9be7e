from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Feature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UnknownFeature: _ClassVar[Feature]
    Extended: _ClassVar[Feature]
    NodeItem: _ClassVar[Feature]
    Batches: _ClassVar[Feature]

class Set(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UnknownSet: _ClassVar[Set]
    ServicesSet: _ClassVar[Set]
    EndpointsSet: _ClassVar[Set]
    GlobalServiceInfos: _ClassVar[Set]
    GlobalEndpointInfos: _ClassVar[Set]
    GlobalNodeInfos: _ClassVar[Set]
    NodesSet: _ClassVar[Set]
    GlobalClusterInfos: _ClassVar[Set]

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Identity: _ClassVar[Encoding]
    Zstd: _ClassVar[Encoding]

class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UnknownProtocol: _ClassVar[Protocol]
    TCP: _ClassVar[Protocol]
    UDP: _ClassVar[Protocol]
    SCTP: _ClassVar[Protocol]
UnknownFeature: Feature
Extended: Feature
NodeItem: Feature
Batches: Feature
UnknownSet: Set
ServicesSet: Set
EndpointsSet: Set
GlobalServiceInfos: Set
GlobalEndpointInfos: Set
GlobalNodeInfos: Set
NodesSet: Set
GlobalClusterInfos: Set
Identity: Encoding
Zstd: Encoding
UnknownProtocol: Protocol
TCP: Protocol
UDP: Protocol
SCTP: Protocol

class WatchReq(_message.Message):
    __slots__ = ("NodeName", "Features", "ServiceProxyName", "HeldDigests", "Ack", "Subscriber", "Count", "Received", "LastFailure")
    NODENAME_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SERVICEPROXYNAME_FIELD_NUMBER: _ClassVar[int]
    HELDDIGESTS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LASTFAILURE_FIELD_NUMBER: _ClassVar[int]
    NodeName: str
    Features: _containers.RepeatedScalarFieldContainer[Feature]
    ServiceProxyName: str
    HeldDigests: bytes
    Ack: Ack
    Subscriber: Subscriber
    Count: int
    Received: int
    LastFailure: ApplyFailure
    def __init__(self, NodeName: _Optional[str] = ..., Features: _Optional[_Iterable[_Union[Feature, str]]] = ..., ServiceProxyName: _Optional[str] = ..., HeldDigests: _Optional[bytes] = ..., Ack: _Optional[_Union[Ack, _Mapping]] = ..., Subscriber: _Optional[_Union[Subscriber, _Mapping]] = ..., Count: _Optional[int] = ..., Received: _Optional[int] = ..., LastFailure: _Optional[_Union[ApplyFailure, _Mapping]] = ...) -> None: ...

class ApplyFailure(_message.Message):
    __slots__ = ("Error", "AgeMicros")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AGEMICROS_FIELD_NUMBER: _ClassVar[int]
    Error: str
    AgeMicros: int
    def __init__(self, Error: _Optional[str] = ..., AgeMicros: _Optional[int] = ...) -> None: ...

class Subscriber(_message.Message):
    __slots__ = ("Name", "Version", "Observes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OBSERVES_FIELD_NUMBER: _ClassVar[int]
    Name: str
    Version: str
    Observes: bool
    def __init__(self, Name: _Optional[str] = ..., Version: _Optional[str] = ..., Observes: bool = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("Applied", "Failed", "Error", "Timings", "AgeMicros", "Earlier")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    AGEMICROS_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    Applied: int
    Failed: int
    Error: str
    Timings: AckTimings
    AgeMicros: int
    Earlier: _containers.RepeatedCompositeFieldContainer[EarlierAck]
    def __init__(self, Applied: _Optional[int] = ..., Failed: _Optional[int] = ..., Error: _Optional[str] = ..., Timings: _Optional[_Union[AckTimings, _Mapping]] = ..., AgeMicros: _Optional[int] = ..., Earlier: _Optional[_Iterable[_Union[EarlierAck, _Mapping]]] = ...) -> None: ...

class EarlierAck(_message.Message):
    __slots__ = ("Applied", "AgeMicros")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    AGEMICROS_FIELD_NUMBER: _ClassVar[int]
    Applied: int
    AgeMicros: int
    def __init__(self, Applied: _Optional[int] = ..., AgeMicros: _Optional[int] = ...) -> None: ...

class AckTimings(_message.Message):
    __slots__ = ("WaitMicros", "RenderMicros", "CommitMicros")
    WAITMICROS_FIELD_NUMBER: _ClassVar[int]
    RENDERMICROS_FIELD_NUMBER: _ClassVar[int]
    COMMITMICROS_FIELD_NUMBER: _ClassVar[int]
    WaitMicros: int
    RenderMicros: int
    CommitMicros: int
    def __init__(self, WaitMicros: _Optional[int] = ..., RenderMicros: _Optional[int] = ..., CommitMicros: _Optional[int] = ...) -> None: ...

class OpItem(_message.Message):
    __slots__ = ("Sync", "Reset", "Set", "Delete", "Keep", "Batch")
    SYNC_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    Sync: EmptyOp
    Reset: EmptyOp
    Set: Value
    Delete: Ref
    Keep: KeepOp
    Batch: BatchOp
    def __init__(self, Sync: _Optional[_Union[EmptyOp, _Mapping]] = ..., Reset: _Optional[_Union[EmptyOp, _Mapping]] = ..., Set: _Optional[_Union[Value, _Mapping]] = ..., Delete: _Optional[_Union[Ref, _Mapping]] = ..., Keep: _Optional[_Union[KeepOp, _Mapping]] = ..., Batch: _Optional[_Union[BatchOp, _Mapping]] = ...) -> None: ...

class BatchOp(_message.Message):
    __slots__ = ("Encoding", "Items", "Size")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    Encoding: Encoding
    Items: bytes
    Size: int
    def __init__(self, Encoding: _Optional[_Union[Encoding, str]] = ..., Items: _Optional[bytes] = ..., Size: _Optional[int] = ...) -> None: ...

class OpItems(_message.Message):
    __slots__ = ("Items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    Items: _containers.RepeatedCompositeFieldContainer[OpItem]
    def __init__(self, Items: _Optional[_Iterable[_Union[OpItem, _Mapping]]] = ...) -> None: ...

class KeepOp(_message.Message):
    __slots__ = ("Buckets",)
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    Buckets: bytes
    def __init__(self, Buckets: _Optional[bytes] = ...) -> None: ...

class EmptyOp(_message.Message):
    __slots__ = ("Revision", "Instance", "TakesAcks", "Digest", "Traceparents", "TriggeredAtMs", "StoredAtMicros", "TracedNodes", "TakesCounts", "AckIntervalMs", "Position")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TAKESACKS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    TRIGGEREDATMS_FIELD_NUMBER: _ClassVar[int]
    STOREDATMICROS_FIELD_NUMBER: _ClassVar[int]
    TRACEDNODES_FIELD_NUMBER: _ClassVar[int]
    TAKESCOUNTS_FIELD_NUMBER: _ClassVar[int]
    ACKINTERVALMS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    Revision: int
    Instance: str
    TakesAcks: bool
    Digest: int
    Traceparents: _containers.RepeatedScalarFieldContainer[str]
    TriggeredAtMs: _containers.RepeatedScalarFieldContainer[int]
    StoredAtMicros: int
    TracedNodes: float
    TakesCounts: bool
    AckIntervalMs: int
    Position: Position
    def __init__(self, Revision: _Optional[int] = ..., Instance: _Optional[str] = ..., TakesAcks: bool = ..., Digest: _Optional[int] = ..., Traceparents: _Optional[_Iterable[str]] = ..., TriggeredAtMs: _Optional[_Iterable[int]] = ..., StoredAtMicros: _Optional[int] = ..., TracedNodes: _Optional[float] = ..., TakesCounts: bool = ..., AckIntervalMs: _Optional[int] = ..., Position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("Source", "Services", "Slices", "Nodes", "CurrentServices", "CurrentSlices", "CurrentNodes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CURRENTSERVICES_FIELD_NUMBER: _ClassVar[int]
    CURRENTSLICES_FIELD_NUMBER: _ClassVar[int]
    CURRENTNODES_FIELD_NUMBER: _ClassVar[int]
    Source: str
    Services: int
    Slices: int
    Nodes: int
    CurrentServices: int
    CurrentSlices: int
    CurrentNodes: int
    def __init__(self, Source: _Optional[str] = ..., Services: _Optional[int] = ..., Slices: _Optional[int] = ..., Nodes: _Optional[int] = ..., CurrentServices: _Optional[int] = ..., CurrentSlices: _Optional[int] = ..., CurrentNodes: _Optional[int] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ("Set", "Path")
    SET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    Set: Set
    Path: str
    def __init__(self, Set: _Optional[_Union[Set, str]] = ..., Path: _Optional[str] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("Ref", "Bytes")
    REF_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    Ref: Ref
    Bytes: bytes
    def __init__(self, Ref: _Optional[_Union[Ref, _Mapping]] = ..., Bytes: _Optional[bytes] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("Namespace", "Name", "Type", "Labels", "Annotations", "IPs", "IPFilters", "MapIP", "Ports", "ExternalTrafficToLocal", "ClientIP", "InternalTrafficToLocal", "HealthCheckNodePort", "ProxyModeLoadBalancerIPs", "CreatedSeconds", "UID")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    IPS_FIELD_NUMBER: _ClassVar[int]
    IPFILTERS_FIELD_NUMBER: _ClassVar[int]
    MAPIP_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    EXTERNALTRAFFICTOLOCAL_FIELD_NUMBER: _ClassVar[int]
    CLIENTIP_FIELD_NUMBER: _ClassVar[int]
    INTERNALTRAFFICTOLOCAL_FIELD_NUMBER: _ClassVar[int]
    HEALTHCHECKNODEPORT_FIELD_NUMBER: _ClassVar[int]
    PROXYMODELOADBALANCERIPS_FIELD_NUMBER: _ClassVar[int]
    CREATEDSECONDS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    Namespace: str
    Name: str
    Type: str
    Labels: _containers.ScalarMap[str, str]
    Annotations: _containers.ScalarMap[str, str]
    IPs: ServiceIPs
    IPFilters: _containers.RepeatedCompositeFieldContainer[IPFilter]
    MapIP: bool
    Ports: _containers.RepeatedCompositeFieldContainer[PortMapping]
    ExternalTrafficToLocal: bool
    ClientIP: ClientIPAffinity
    InternalTrafficToLocal: bool
    HealthCheckNodePort: int
    ProxyModeLoadBalancerIPs: IPSet
    CreatedSeconds: int
    UID: str
    def __init__(self, Namespace: _Optional[str] = ..., Name: _Optional[str] = ..., Type: _Optional[str] = ..., Labels: _Optional[_Mapping[str, str]] = ..., Annotations: _Optional[_Mapping[str, str]] = ..., IPs: _Optional[_Union[ServiceIPs, _Mapping]] = ..., IPFilters: _Optional[_Iterable[_Union[IPFilter, _Mapping]]] = ..., MapIP: bool = ..., Ports: _Optional[_Iterable[_Union[PortMapping, _Mapping]]] = ..., ExternalTrafficToLocal: bool = ..., ClientIP: _Optional[_Union[ClientIPAffinity, _Mapping]] = ..., InternalTrafficToLocal: bool = ..., HealthCheckNodePort: _Optional[int] = ..., ProxyModeLoadBalancerIPs: _Optional[_Union[IPSet, _Mapping]] = ..., CreatedSeconds: _Optional[int] = ..., UID: _Optional[str] = ...) -> None: ...

class IPFilter(_message.Message):
    __slots__ = ("TargetIPs", "SourceRanges")
    TARGETIPS_FIELD_NUMBER: _ClassVar[int]
    SOURCERANGES_FIELD_NUMBER: _ClassVar[int]
    TargetIPs: IPSet
    SourceRanges: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, TargetIPs: _Optional[_Union[IPSet, _Mapping]] = ..., SourceRanges: _Optional[_Iterable[str]] = ...) -> None: ...

class ServiceIPs(_message.Message):
    __slots__ = ("ClusterIPs", "ExternalIPs", "LoadBalancerIPs", "Headless")
    CLUSTERIPS_FIELD_NUMBER: _ClassVar[int]
    EXTERNALIPS_FIELD_NUMBER: _ClassVar[int]
    LOADBALANCERIPS_FIELD_NUMBER: _ClassVar[int]
    HEADLESS_FIELD_NUMBER: _ClassVar[int]
    ClusterIPs: IPSet
    ExternalIPs: IPSet
    LoadBalancerIPs: IPSet
    Headless: bool
    def __init__(self, ClusterIPs: _Optional[_Union[IPSet, _Mapping]] = ..., ExternalIPs: _Optional[_Union[IPSet, _Mapping]] = ..., LoadBalancerIPs: _Optional[_Union[IPSet, _Mapping]] = ..., Headless: bool = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("Hostname", "IPs", "Local", "PortOverrides", "Scopes", "Use", "FirstIPs", "PodName", "NodeName")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    IPS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    PORTOVERRIDES_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    FIRSTIPS_FIELD_NUMBER: _ClassVar[int]
    PODNAME_FIELD_NUMBER: _ClassVar[int]
    NODENAME_FIELD_NUMBER: _ClassVar[int]
    Hostname: str
    IPs: IPSet
    Local: bool
    PortOverrides: _containers.RepeatedCompositeFieldContainer[PortName]
    Scopes: EndpointScopes
    Use: EndpointUse
    FirstIPs: IPSet
    PodName: str
    NodeName: str
    def __init__(self, Hostname: _Optional[str] = ..., IPs: _Optional[_Union[IPSet, _Mapping]] = ..., Local: bool = ..., PortOverrides: _Optional[_Iterable[_Union[PortName, _Mapping]]] = ..., Scopes: _Optional[_Union[EndpointScopes, _Mapping]] = ..., Use: _Optional[_Union[EndpointUse, _Mapping]] = ..., FirstIPs: _Optional[_Union[IPSet, _Mapping]] = ..., PodName: _Optional[str] = ..., NodeName: _Optional[str] = ...) -> None: ...

class EndpointUse(_message.Message):
    __slots__ = ("Cluster", "Local", "Ready", "Serving", "Terminating")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    TERMINATING_FIELD_NUMBER: _ClassVar[int]
    Cluster: bool
    Local: bool
    Ready: bool
    Serving: bool
    Terminating: bool
    def __init__(self, Cluster: bool = ..., Local: bool = ..., Ready: bool = ..., Serving: bool = ..., Terminating: bool = ...) -> None: ...

class EndpointScopes(_message.Message):
    __slots__ = ("Internal", "External")
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    Internal: bool
    External: bool
    def __init__(self, Internal: bool = ..., External: bool = ...) -> None: ...

class IPSet(_message.Message):
    __slots__ = ("V4", "V6")
    V4_FIELD_NUMBER: _ClassVar[int]
    V6_FIELD_NUMBER: _ClassVar[int]
    V4: _containers.RepeatedScalarFieldContainer[str]
    V6: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, V4: _Optional[_Iterable[str]] = ..., V6: _Optional[_Iterable[str]] = ...) -> None: ...

class PortName(_message.Message):
    __slots__ = ("Name", "Port", "Protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    Name: str
    Port: int
    Protocol: Protocol
    def __init__(self, Name: _Optional[str] = ..., Port: _Optional[int] = ..., Protocol: _Optional[_Union[Protocol, str]] = ...) -> None: ...

class PortMapping(_message.Message):
    __slots__ = ("Name", "Protocol", "Port", "NodePort", "TargetPort", "TargetPortName", "HasEndpoints")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    NODEPORT_FIELD_NUMBER: _ClassVar[int]
    TARGETPORT_FIELD_NUMBER: _ClassVar[int]
    TARGETPORTNAME_FIELD_NUMBER: _ClassVar[int]
    HASENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    Name: str
    Protocol: Protocol
    Port: int
    NodePort: int
    TargetPort: int
    TargetPortName: str
    HasEndpoints: FamilyFlags
    def __init__(self, Name: _Optional[str] = ..., Protocol: _Optional[_Union[Protocol, str]] = ..., Port: _Optional[int] = ..., NodePort: _Optional[int] = ..., TargetPort: _Optional[int] = ..., TargetPortName: _Optional[str] = ..., HasEndpoints: _Optional[_Union[FamilyFlags, _Mapping]] = ...) -> None: ...

class FamilyFlags(_message.Message):
    __slots__ = ("V4", "V6")
    V4_FIELD_NUMBER: _ClassVar[int]
    V6_FIELD_NUMBER: _ClassVar[int]
    V4: bool
    V6: bool
    def __init__(self, V4: bool = ..., V6: bool = ...) -> None: ...

class ClientIPAffinity(_message.Message):
    __slots__ = ("TimeoutSeconds",)
    TIMEOUTSECONDS_FIELD_NUMBER: _ClassVar[int]
    TimeoutSeconds: int
    def __init__(self, TimeoutSeconds: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("Name", "Zone", "Addresses", "PodCIDRs", "Eligible", "ServiceCIDRs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    PODCIDRS_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    SERVICECIDRS_FIELD_NUMBER: _ClassVar[int]
    Name: str
    Zone: str
    Addresses: _containers.RepeatedScalarFieldContainer[str]
    PodCIDRs: _containers.RepeatedScalarFieldContainer[str]
    Eligible: bool
    ServiceCIDRs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, Name: _Optional[str] = ..., Zone: _Optional[str] = ..., Addresses: _Optional[_Iterable[str]] = ..., PodCIDRs: _Optional[_Iterable[str]] = ..., Eligible: bool = ..., ServiceCIDRs: _Optional[_Iterable[str]] = ...) -> None: ...
