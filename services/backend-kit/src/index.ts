// The public exports of this package, for backends outside this repository. Code inside the repository imports each
// name from the file that defines it.
export type { AddressSet, Family } from "@kpng/model/address.ts";
export type { EndpointConditions, EndpointPort } from "@kpng/model/endpoint.ts";
export type {
  EndpointUse,
  FamilyFlags,
  NodeView,
  ServiceView,
  ViewEndpoint,
  ViewNode,
} from "@kpng/model/node-view.ts";
export type {
  IPFilter,
  Protocol,
  Service,
  ServiceKey,
  ServicePort,
  ServiceType,
  TrafficPolicy,
  UnknownPort,
} from "@kpng/model/service.ts";
export { type DialOptions, dial } from "@kpng/process/connection/dial.ts";
export { Health, type PartHealth } from "@kpng/process/health/health.ts";
export { createLog, type Log, type LogFields, type LogLevel } from "@kpng/process/log.ts";
export type { OptionSpec } from "@kpng/process/options.ts";
export type { Task } from "@kpng/process/task.ts";
export { openTracing } from "@kpng/process/trace/open-tracing.ts";
export type { TracedProcess, Tracing } from "@kpng/process/trace/tracing.ts";
export type {
  AllowedSources,
  EndpointAddress,
  Frontend,
  NodePlan,
  Route,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
export type { BackendCommand, BackendContext } from "./backend/backend-command.ts";
export { backendOptions, connectionOptions, followOptions, readFollowOptions } from "./backend/backend-options.ts";
export { type BackendCallbacks, type BackendTaskOptions, backendTask } from "./backend/backend-task.ts";
export {
  type CallbacksFromOptions,
  type RunBackendOptions,
  runBackend,
  runBackendCommand,
} from "./backend/run-backend.ts";
export { type DialWatchersOptions, dialWatchers } from "./discovery/dial-watchers.ts";
export { readStateFolder, stateOptions } from "./disk/view-keeper.ts";
export { type ProgramEnd, type ProgramOptions, runProgram } from "./exec/run-program.ts";
export type { InspectedRules } from "./inspect/backend-inspection.ts";
export { proxyBackend } from "./proxy/proxy-backend.ts";
export type {
  Destination,
  OpenRuleSets,
  ProxyAlternative,
  ProxyHost,
  ProxySpec,
  ServiceProxy,
} from "./proxy/proxy-spec.ts";
export type { FamilyPlan, RuleChange, RuleDifference, RuleList, RuleSet } from "./proxy/rule-set.ts";
export type { FamilyOutcome } from "./proxy/rule-sets.ts";
export { type ConnectionState, type FollowOptions, followView } from "./receive/follow-view.ts";
export type { WatchOptions } from "./receive/watch-requests.ts";
export { formatServiceLine, formatViewLines } from "./state/kpng-json.ts";
export { type PeriodicCheck, type SyncPace, SyncRequests } from "./sync/sync-loop.ts";
export { BackendError, type BackendErrorCode } from "./types/backend-error.ts";
export type { ParsedOptions } from "./types/parsed-options.ts";
export type {
  Arrival,
  Sync,
  SyncMode,
  SyncObserver,
  SyncStages,
  SyncTimes,
  SyncUpdate,
  ViewUpdate,
} from "./types/sync-update.ts";
