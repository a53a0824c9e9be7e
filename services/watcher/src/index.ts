// Public API of the package, for programs that embed a watcher; the package's README shows one. Code in this
// repository imports from the defining file.
export type { AddressSet, Family } from "@kpng/model/address.ts";
export type { Endpoint, EndpointConditions, EndpointPort, EndpointSlice, SliceKey } from "@kpng/model/endpoint.ts";
export type { Node } from "@kpng/model/node.ts";
export type { IPFilter, Service, ServiceKey, ServicePort } from "@kpng/model/service.ts";
export { type DialOptions, dial } from "@kpng/process/connection/dial.ts";
export { Health, type PartHealth } from "@kpng/process/health/health.ts";
export { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
export type { Task } from "@kpng/process/task.ts";
export { runTasks, runWithMain } from "@kpng/process/task.ts";
export { inspection } from "./inspect/inspection.ts";
export { type ApiSourceOptions, apiSource } from "./source/api/api-source.ts";
export { type DecodeGlobs, type DecodeOptions, makeDecodeOptions } from "./source/decode/decoded.ts";
export { type FileSourceOptions, fileSource } from "./source/file/file-source.ts";
export { connectKube } from "./source/kube/connect.ts";
export { type KubeSourceOptions, kubeSource } from "./source/kube/kube-source.ts";
export type { ClusterObjects, ClusterSink, ObjectChange, Source } from "./source/source.ts";
export { WatcherError, type WatcherErrorCode } from "./source/watcher-error.ts";
export { type StateFileOptions, stateFileSink } from "./state-file/state-file-sink.ts";
export { emptySnapshot, type Snapshot } from "./store/snapshot.ts";
export { Store } from "./store/store.ts";
export { observeStore } from "./store/store-metrics.ts";
export type { ServeOptions } from "./stream/serve/call-handler.ts";
export type { AddService, RoutesOptions } from "./stream/serve/routes.ts";
export { serveTask } from "./stream/serve/serve.ts";
export { type ProxyNames, proxyNamesOf } from "./stream/session/requests.ts";
export { Subscribers } from "./stream/session/subscribers.ts";
export { makeServiceView } from "./view/service-view.ts";
