from pelton.plgd.wire import events_pb2 as _events_pb2
from pelton.plgd.wire import registrations_pb2 as _registrations_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceIdFilter(_message.Message):
    __slots__ = ("resource_id", "etag")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    resource_id: _events_pb2.ResourceId
    etag: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, resource_id: _Optional[_Union[_events_pb2.ResourceId, _Mapping]] = ..., etag: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetDevicesRequest(_message.Message):
    __slots__ = ("type_filter", "status_filter", "device_id_filter")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ONLINE: _ClassVar[GetDevicesRequest.Status]
        OFFLINE: _ClassVar[GetDevicesRequest.Status]
    ONLINE: GetDevicesRequest.Status
    OFFLINE: GetDevicesRequest.Status
    TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FILTER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    type_filter: _containers.RepeatedScalarFieldContainer[str]
    status_filter: _containers.RepeatedScalarFieldContainer[GetDevicesRequest.Status]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type_filter: _Optional[_Iterable[str]] = ..., status_filter: _Optional[_Iterable[_Union[GetDevicesRequest.Status, str]]] = ..., device_id_filter: _Optional[_Iterable[str]] = ...) -> None: ...

class LocalizedString(_message.Message):
    __slots__ = ("language", "value")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    language: str
    value: str
    def __init__(self, language: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "types", "name", "metadata", "manufacturer_name", "model_number", "interfaces", "protocol_independent_id", "data", "ownership_status", "endpoints")
    class OwnershipStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Device.OwnershipStatus]
        UNOWNED: _ClassVar[Device.OwnershipStatus]
        OWNED: _ClassVar[Device.OwnershipStatus]
        UNSUPPORTED: _ClassVar[Device.OwnershipStatus]
    UNKNOWN: Device.OwnershipStatus
    UNOWNED: Device.OwnershipStatus
    OWNED: Device.OwnershipStatus
    UNSUPPORTED: Device.OwnershipStatus
    class Metadata(_message.Message):
        __slots__ = ("connection", "twin_synchronization", "twin_enabled")
        CONNECTION_FIELD_NUMBER: _ClassVar[int]
        TWIN_SYNCHRONIZATION_FIELD_NUMBER: _ClassVar[int]
        TWIN_ENABLED_FIELD_NUMBER: _ClassVar[int]
        connection: _events_pb2.Connection
        twin_synchronization: _events_pb2.TwinSynchronization
        twin_enabled: bool
        def __init__(self, connection: _Optional[_Union[_events_pb2.Connection, _Mapping]] = ..., twin_synchronization: _Optional[_Union[_events_pb2.TwinSynchronization, _Mapping]] = ..., twin_enabled: _Optional[bool] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MANUFACTURER_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INTERFACES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_INDEPENDENT_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    types: _containers.RepeatedScalarFieldContainer[str]
    name: str
    metadata: Device.Metadata
    manufacturer_name: _containers.RepeatedCompositeFieldContainer[LocalizedString]
    model_number: str
    interfaces: _containers.RepeatedScalarFieldContainer[str]
    protocol_independent_id: str
    data: _events_pb2.ResourceChanged
    ownership_status: Device.OwnershipStatus
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., metadata: _Optional[_Union[Device.Metadata, _Mapping]] = ..., manufacturer_name: _Optional[_Iterable[_Union[LocalizedString, _Mapping]]] = ..., model_number: _Optional[str] = ..., interfaces: _Optional[_Iterable[str]] = ..., protocol_independent_id: _Optional[str] = ..., data: _Optional[_Union[_events_pb2.ResourceChanged, _Mapping]] = ..., ownership_status: _Optional[_Union[Device.OwnershipStatus, str]] = ..., endpoints: _Optional[_Iterable[str]] = ...) -> None: ...

class GetDevicesMetadataRequest(_message.Message):
    __slots__ = ("device_id_filter", "type_filter")
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    type_filter: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, device_id_filter: _Optional[_Iterable[str]] = ..., type_filter: _Optional[_Iterable[str]] = ...) -> None: ...

class GetEventsRequest(_message.Message):
    __slots__ = ("device_id_filter", "http_resource_id_filter", "timestamp_filter", "resource_id_filter")
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    HTTP_RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    http_resource_id_filter: _containers.RepeatedScalarFieldContainer[str]
    timestamp_filter: int
    resource_id_filter: _containers.RepeatedCompositeFieldContainer[ResourceIdFilter]
    def __init__(self, device_id_filter: _Optional[_Iterable[str]] = ..., http_resource_id_filter: _Optional[_Iterable[str]] = ..., timestamp_filter: _Optional[int] = ..., resource_id_filter: _Optional[_Iterable[_Union[ResourceIdFilter, _Mapping]]] = ...) -> None: ...

class GetEventsResponse(_message.Message):
    __slots__ = ("resource_links_published", "resource_links_unpublished", "resource_links_snapshot_taken", "resource_changed", "resource_update_pending", "resource_updated", "resource_retrieve_pending", "resource_retrieved", "resource_delete_pending", "resource_deleted", "resource_create_pending", "resource_created", "resource_state_snapshot_taken", "device_metadata_update_pending", "device_metadata_updated", "device_metadata_snapshot_taken")
    RESOURCE_LINKS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LINKS_UNPUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LINKS_SNAPSHOT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UPDATED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_RETRIEVE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_RETRIEVED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DELETE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DELETED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CREATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CREATED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_STATE_SNAPSHOT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_UPDATED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_SNAPSHOT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    resource_links_published: _events_pb2.ResourceLinksPublished
    resource_links_unpublished: _events_pb2.ResourceLinksUnpublished
    resource_links_snapshot_taken: _events_pb2.ResourceLinksSnapshotTaken
    resource_changed: _events_pb2.ResourceChanged
    resource_update_pending: _events_pb2.ResourceUpdatePending
    resource_updated: _events_pb2.ResourceUpdated
    resource_retrieve_pending: _events_pb2.ResourceRetrievePending
    resource_retrieved: _events_pb2.ResourceRetrieved
    resource_delete_pending: _events_pb2.ResourceDeletePending
    resource_deleted: _events_pb2.ResourceDeleted
    resource_create_pending: _events_pb2.ResourceCreatePending
    resource_created: _events_pb2.ResourceCreated
    resource_state_snapshot_taken: _events_pb2.ResourceStateSnapshotTaken
    device_metadata_update_pending: _events_pb2.DeviceMetadataUpdatePending
    device_metadata_updated: _events_pb2.DeviceMetadataUpdated
    device_metadata_snapshot_taken: _events_pb2.DeviceMetadataSnapshotTaken
    def __init__(self, resource_links_published: _Optional[_Union[_events_pb2.ResourceLinksPublished, _Mapping]] = ..., resource_links_unpublished: _Optional[_Union[_events_pb2.ResourceLinksUnpublished, _Mapping]] = ..., resource_links_snapshot_taken: _Optional[_Union[_events_pb2.ResourceLinksSnapshotTaken, _Mapping]] = ..., resource_changed: _Optional[_Union[_events_pb2.ResourceChanged, _Mapping]] = ..., resource_update_pending: _Optional[_Union[_events_pb2.ResourceUpdatePending, _Mapping]] = ..., resource_updated: _Optional[_Union[_events_pb2.ResourceUpdated, _Mapping]] = ..., resource_retrieve_pending: _Optional[_Union[_events_pb2.ResourceRetrievePending, _Mapping]] = ..., resource_retrieved: _Optional[_Union[_events_pb2.ResourceRetrieved, _Mapping]] = ..., resource_delete_pending: _Optional[_Union[_events_pb2.ResourceDeletePending, _Mapping]] = ..., resource_deleted: _Optional[_Union[_events_pb2.ResourceDeleted, _Mapping]] = ..., resource_create_pending: _Optional[_Union[_events_pb2.ResourceCreatePending, _Mapping]] = ..., resource_created: _Optional[_Union[_events_pb2.ResourceCreated, _Mapping]] = ..., resource_state_snapshot_taken: _Optional[_Union[_events_pb2.ResourceStateSnapshotTaken, _Mapping]] = ..., device_metadata_update_pending: _Optional[_Union[_events_pb2.DeviceMetadataUpdatePending, _Mapping]] = ..., device_metadata_updated: _Optional[_Union[_events_pb2.DeviceMetadataUpdated, _Mapping]] = ..., device_metadata_snapshot_taken: _Optional[_Union[_events_pb2.DeviceMetadataSnapshotTaken, _Mapping]] = ...) -> None: ...

class GetPendingCommandsRequest(_message.Message):
    __slots__ = ("command_filter", "http_resource_id_filter", "device_id_filter", "type_filter", "resource_id_filter", "include_hidden_resources")
    class Command(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESOURCE_CREATE: _ClassVar[GetPendingCommandsRequest.Command]
        RESOURCE_RETRIEVE: _ClassVar[GetPendingCommandsRequest.Command]
        RESOURCE_UPDATE: _ClassVar[GetPendingCommandsRequest.Command]
        RESOURCE_DELETE: _ClassVar[GetPendingCommandsRequest.Command]
        DEVICE_METADATA_UPDATE: _ClassVar[GetPendingCommandsRequest.Command]
    RESOURCE_CREATE: GetPendingCommandsRequest.Command
    RESOURCE_RETRIEVE: GetPendingCommandsRequest.Command
    RESOURCE_UPDATE: GetPendingCommandsRequest.Command
    RESOURCE_DELETE: GetPendingCommandsRequest.Command
    DEVICE_METADATA_UPDATE: GetPendingCommandsRequest.Command
    COMMAND_FILTER_FIELD_NUMBER: _ClassVar[int]
    HTTP_RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_HIDDEN_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    command_filter: _containers.RepeatedScalarFieldContainer[GetPendingCommandsRequest.Command]
    http_resource_id_filter: _containers.RepeatedScalarFieldContainer[str]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    type_filter: _containers.RepeatedScalarFieldContainer[str]
    resource_id_filter: _containers.RepeatedCompositeFieldContainer[ResourceIdFilter]
    include_hidden_resources: bool
    def __init__(self, command_filter: _Optional[_Iterable[_Union[GetPendingCommandsRequest.Command, str]]] = ..., http_resource_id_filter: _Optional[_Iterable[str]] = ..., device_id_filter: _Optional[_Iterable[str]] = ..., type_filter: _Optional[_Iterable[str]] = ..., resource_id_filter: _Optional[_Iterable[_Union[ResourceIdFilter, _Mapping]]] = ..., include_hidden_resources: _Optional[bool] = ...) -> None: ...

class PendingCommand(_message.Message):
    __slots__ = ("resource_create_pending", "resource_retrieve_pending", "resource_update_pending", "resource_delete_pending", "device_metadata_update_pending")
    RESOURCE_CREATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_RETRIEVE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DELETE_PENDING_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    resource_create_pending: _events_pb2.ResourceCreatePending
    resource_retrieve_pending: _events_pb2.ResourceRetrievePending
    resource_update_pending: _events_pb2.ResourceUpdatePending
    resource_delete_pending: _events_pb2.ResourceDeletePending
    device_metadata_update_pending: _events_pb2.DeviceMetadataUpdatePending
    def __init__(self, resource_create_pending: _Optional[_Union[_events_pb2.ResourceCreatePending, _Mapping]] = ..., resource_retrieve_pending: _Optional[_Union[_events_pb2.ResourceRetrievePending, _Mapping]] = ..., resource_update_pending: _Optional[_Union[_events_pb2.ResourceUpdatePending, _Mapping]] = ..., resource_delete_pending: _Optional[_Union[_events_pb2.ResourceDeletePending, _Mapping]] = ..., device_metadata_update_pending: _Optional[_Union[_events_pb2.DeviceMetadataUpdatePending, _Mapping]] = ...) -> None: ...

class GetResourceLinksRequest(_message.Message):
    __slots__ = ("type_filter", "device_id_filter")
    TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    type_filter: _containers.RepeatedScalarFieldContainer[str]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type_filter: _Optional[_Iterable[str]] = ..., device_id_filter: _Optional[_Iterable[str]] = ...) -> None: ...

class GetResourcesRequest(_message.Message):
    __slots__ = ("http_resource_id_filter", "device_id_filter", "type_filter", "resource_id_filter")
    HTTP_RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
    http_resource_id_filter: _containers.RepeatedScalarFieldContainer[str]
    device_id_filter: _containers.RepeatedScalarFieldContainer[str]
    type_filter: _containers.RepeatedScalarFieldContainer[str]
    resource_id_filter: _containers.RepeatedCompositeFieldContainer[ResourceIdFilter]
    def __init__(self, http_resource_id_filter: _Optional[_Iterable[str]] = ..., device_id_filter: _Optional[_Iterable[str]] = ..., type_filter: _Optional[_Iterable[str]] = ..., resource_id_filter: _Optional[_Iterable[_Union[ResourceIdFilter, _Mapping]]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("types", "data")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[str]
    data: _events_pb2.ResourceChanged
    def __init__(self, types: _Optional[_Iterable[str]] = ..., data: _Optional[_Union[_events_pb2.ResourceChanged, _Mapping]] = ...) -> None: ...

class SubscribeToEvents(_message.Message):
    __slots__ = ("create_subscription", "cancel_subscription", "correlation_id")
    class CreateSubscription(_message.Message):
        __slots__ = ("event_filter", "device_id_filter", "http_resource_id_filter", "href_filter", "resource_id_filter", "lead_resource_type_filter")
        class Event(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            REGISTERED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            UNREGISTERED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            DEVICE_METADATA_UPDATED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            DEVICE_METADATA_UPDATE_PENDING: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_PUBLISHED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_UNPUBLISHED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_UPDATE_PENDING: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_UPDATED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_RETRIEVE_PENDING: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_RETRIEVED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_DELETE_PENDING: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_DELETED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_CREATE_PENDING: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_CREATED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
            RESOURCE_CHANGED: _ClassVar[SubscribeToEvents.CreateSubscription.Event]
        REGISTERED: SubscribeToEvents.CreateSubscription.Event
        UNREGISTERED: SubscribeToEvents.CreateSubscription.Event
        DEVICE_METADATA_UPDATED: SubscribeToEvents.CreateSubscription.Event
        DEVICE_METADATA_UPDATE_PENDING: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_PUBLISHED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_UNPUBLISHED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_UPDATE_PENDING: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_UPDATED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_RETRIEVE_PENDING: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_RETRIEVED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_DELETE_PENDING: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_DELETED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_CREATE_PENDING: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_CREATED: SubscribeToEvents.CreateSubscription.Event
        RESOURCE_CHANGED: SubscribeToEvents.CreateSubscription.Event
        EVENT_FILTER_FIELD_NUMBER: _ClassVar[int]
        DEVICE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
        HTTP_RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
        HREF_FILTER_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_ID_FILTER_FIELD_NUMBER: _ClassVar[int]
        LEAD_RESOURCE_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
        event_filter: _containers.RepeatedScalarFieldContainer[SubscribeToEvents.CreateSubscription.Event]
        device_id_filter: _containers.RepeatedScalarFieldContainer[str]
        http_resource_id_filter: _containers.RepeatedScalarFieldContainer[str]
        href_filter: _containers.RepeatedScalarFieldContainer[str]
        resource_id_filter: _containers.RepeatedCompositeFieldContainer[ResourceIdFilter]
        lead_resource_type_filter: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, event_filter: _Optional[_Iterable[_Union[SubscribeToEvents.CreateSubscription.Event, str]]] = ..., device_id_filter: _Optional[_Iterable[str]] = ..., http_resource_id_filter: _Optional[_Iterable[str]] = ..., href_filter: _Optional[_Iterable[str]] = ..., resource_id_filter: _Optional[_Iterable[_Union[ResourceIdFilter, _Mapping]]] = ..., lead_resource_type_filter: _Optional[_Iterable[str]] = ...) -> None: ...
    class CancelSubscription(_message.Message):
        __slots__ = ("subscription_id",)
        SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
        subscription_id: str
        def __init__(self, subscription_id: _Optional[str] = ...) -> None: ...
    CREATE_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CANCEL_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    create_subscription: SubscribeToEvents.CreateSubscription
    cancel_subscription: SubscribeToEvents.CancelSubscription
    correlation_id: str
    def __init__(self, create_subscription: _Optional[_Union[SubscribeToEvents.CreateSubscription, _Mapping]] = ..., cancel_subscription: _Optional[_Union[SubscribeToEvents.CancelSubscription, _Mapping]] = ..., correlation_id: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("subscription_id", "correlation_id", "device_registered", "device_unregistered", "resource_published", "resource_unpublished", "resource_changed", "operation_processed", "subscription_canceled", "resource_update_pending", "resource_updated", "resource_retrieve_pending", "resource_retrieved", "resource_delete_pending", "resource_deleted", "resource_create_pending", "resource_created", "device_metadata_update_pending", "device_metadata_updated")
    class DeviceRegistered(_message.Message):
        __slots__ = ("device_ids", "event_metadata", "open_telemetry_carrier")
        class OpenTelemetryCarrierEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
        EVENT_METADATA_FIELD_NUMBER: _ClassVar[int]
        OPEN_TELEMETRY_CARRIER_FIELD_NUMBER: _ClassVar[int]
        device_ids: _containers.RepeatedScalarFieldContainer[str]
        event_metadata: _registrations_pb2.EventMetadata
        open_telemetry_carrier: _containers.ScalarMap[str, str]
        def __init__(self, device_ids: _Optional[_Iterable[str]] = ..., event_metadata: _Optional[_Union[_registrations_pb2.EventMetadata, _Mapping]] = ..., open_telemetry_carrier: _Optional[_Mapping[str, str]] = ...) -> None: ...
    class DeviceUnregistered(_message.Message):
        __slots__ = ("device_ids", "event_metadata", "open_telemetry_carrier")
        class OpenTelemetryCarrierEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
        EVENT_METADATA_FIELD_NUMBER: _ClassVar[int]
        OPEN_TELEMETRY_CARRIER_FIELD_NUMBER: _ClassVar[int]
        device_ids: _containers.RepeatedScalarFieldContainer[str]
        event_metadata: _registrations_pb2.EventMetadata
        open_telemetry_carrier: _containers.ScalarMap[str, str]
        def __init__(self, device_ids: _Optional[_Iterable[str]] = ..., event_metadata: _Optional[_Union[_registrations_pb2.EventMetadata, _Mapping]] = ..., open_telemetry_carrier: _Optional[_Mapping[str, str]] = ...) -> None: ...
    class OperationProcessed(_message.Message):
        __slots__ = ("error_status",)
        class ErrorStatus(_message.Message):
            __slots__ = ("code", "message")
            class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
                __slots__ = ()
                OK: _ClassVar[Event.OperationProcessed.ErrorStatus.Code]
                ERROR: _ClassVar[Event.OperationProcessed.ErrorStatus.Code]
                NOT_FOUND: _ClassVar[Event.OperationProcessed.ErrorStatus.Code]
            OK: Event.OperationProcessed.ErrorStatus.Code
            ERROR: Event.OperationProcessed.ErrorStatus.Code
            NOT_FOUND: Event.OperationProcessed.ErrorStatus.Code
            CODE_FIELD_NUMBER: _ClassVar[int]
            MESSAGE_FIELD_NUMBER: _ClassVar[int]
            code: Event.OperationProcessed.ErrorStatus.Code
            message: str
            def __init__(self, code: _Optional[_Union[Event.OperationProcessed.ErrorStatus.Code, str]] = ..., message: _Optional[str] = ...) -> None: ...
        ERROR_STATUS_FIELD_NUMBER: _ClassVar[int]
        error_status: Event.OperationProcessed.ErrorStatus
        def __init__(self, error_status: _Optional[_Union[Event.OperationProcessed.ErrorStatus, _Mapping]] = ...) -> None: ...
    class SubscriptionCanceled(_message.Message):
        __slots__ = ("reason",)
        REASON_FIELD_NUMBER: _ClassVar[int]
        reason: str
        def __init__(self, reason: _Optional[str] = ...) -> None: ...
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UNREGISTERED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UNPUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    OPERATION_PROCESSED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_CANCELED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_UPDATED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_RETRIEVE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_RETRIEVED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DELETE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DELETED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CREATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CREATED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_UPDATE_PENDING_FIELD_NUMBER: _ClassVar[int]
    DEVICE_METADATA_UPDATED_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    correlation_id: str
    device_registered: Event.DeviceRegistered
    device_unregistered: Event.DeviceUnregistered
    resource_published: _events_pb2.ResourceLinksPublished
    resource_unpublished: _events_pb2.ResourceLinksUnpublished
    resource_changed: _events_pb2.ResourceChanged
    operation_processed: Event.OperationProcessed
    subscription_canceled: Event.SubscriptionCanceled
    resource_update_pending: _events_pb2.ResourceUpdatePending
    resource_updated: _events_pb2.ResourceUpdated
    resource_retrieve_pending: _events_pb2.ResourceRetrievePending
    resource_retrieved: _events_pb2.ResourceRetrieved
    resource_delete_pending: _events_pb2.ResourceDeletePending
    resource_deleted: _events_pb2.ResourceDeleted
    resource_create_pending: _events_pb2.ResourceCreatePending
    resource_created: _events_pb2.ResourceCreated
    device_metadata_update_pending: _events_pb2.DeviceMetadataUpdatePending
    device_metadata_updated: _events_pb2.DeviceMetadataUpdated
    def __init__(self, subscription_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., device_registered: _Optional[_Union[Event.DeviceRegistered, _Mapping]] = ..., device_unregistered: _Optional[_Union[Event.DeviceUnregistered, _Mapping]] = ..., resource_published: _Optional[_Union[_events_pb2.ResourceLinksPublished, _Mapping]] = ..., resource_unpublished: _Optional[_Union[_events_pb2.ResourceLinksUnpublished, _Mapping]] = ..., resource_changed: _Optional[_Union[_events_pb2.ResourceChanged, _Mapping]] = ..., operation_processed: _Optional[_Union[Event.OperationProcessed, _Mapping]] = ..., subscription_canceled: _Optional[_Union[Event.SubscriptionCanceled, _Mapping]] = ..., resource_update_pending: _Optional[_Union[_events_pb2.ResourceUpdatePending, _Mapping]] = ..., resource_updated: _Optional[_Union[_events_pb2.ResourceUpdated, _Mapping]] = ..., resource_retrieve_pending: _Optional[_Union[_events_pb2.ResourceRetrievePending, _Mapping]] = ..., resource_retrieved: _Optional[_Union[_events_pb2.ResourceRetrieved, _Mapping]] = ..., resource_delete_pending: _Optional[_Union[_events_pb2.ResourceDeletePending, _Mapping]] = ..., resource_deleted: _Optional[_Union[_events_pb2.ResourceDeleted, _Mapping]] = ..., resource_create_pending: _Optional[_Union[_events_pb2.ResourceCreatePending, _Mapping]] = ..., resource_created: _Optional[_Union[_events_pb2.ResourceCreated, _Mapping]] = ..., device_metadata_update_pending: _Optional[_Union[_events_pb2.DeviceMetadataUpdatePending, _Mapping]] = ..., device_metadata_updated: _Optional[_Union[_events_pb2.DeviceMetadataUpdated, _Mapping]] = ...) -> None: ...
