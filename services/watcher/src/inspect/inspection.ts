import { isMessage, type Message } from "@bufbuild/protobuf";
import type { ConnectRouter, Interceptor } from "@connectrpc/connect";
import {
  ExplainRequestSchema,
  InspectService,
  ListNodeEndpointsRequestSchema,
  ListNodesRequestSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { Health } from "@kpng/process/health/health.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import { checkInspectionRight } from "../identity/rights.ts";
import { leaveKey, rightsKey } from "../stream/serve/connect-handler.ts";
import type { MoreService } from "../stream/serve/routes.ts";
import type { WatchContext } from "../stream/session/requests.ts";
import { explainMethod } from "./explain-method.ts";
import { countFindings, Findings } from "./findings.ts";
import { listMethods } from "./lists.ts";
import { RecentChanges } from "./recent-changes.ts";
import { watchMethods } from "./watches.ts";

interface InspectionOptions extends WatchContext {
  /** Health of the process, which the findings report. Default: nothing to report. */
  readonly health?: Health | undefined;
  /** Registry for the findings metric. Default: no metric. */
  readonly registry?: Registry | undefined;
  /**
   * False if no node can follow this watcher; nodes without a backend are then not reported as findings. Default true.
   */
  readonly hasNodes?: boolean | undefined;
  /** Version of the program, for `kpng status`. Default: unknown. */
  readonly version?: string | undefined;
}

/**
 * Returns the service kpng.inspect.v1.InspectService. The service records changes from this call on, so call this
 * function before the source runs.
 */
export function inspection(options: InspectionOptions): MoreService {
  const { subscribers, proxyNames, health = new Health(), registry, hasNodes = true, version = "" } = options;
  const changes = new RecentChanges();
  subscribers.store.observe((update) => changes.add(update));
  subscribers.observe(changes);
  const findings = new Findings({ subscribers, health, hasNodes });
  if (registry !== undefined) countFindings(registry, findings);
  const context = { subscribers, proxyNames, changes, findings, version, startedAtMs: wallClockMs() };
  return {
    service: InspectService,
    addTo: (router: ConnectRouter) =>
      router.service(
        InspectService,
        {
          ...listMethods(context),
          ...watchMethods(context),
          explain: (request) => subscribers.scheduler.run("query", () => explainMethod(context, request)),
        },
        { interceptors: [inspectionRights] },
      ),
  };
}

/** Checks the rights of each call: the right to a node suffices for an answer that concerns only that node. */
const inspectionRights: Interceptor = (next) => async (request) => {
  // While the client sent the request, its token or CA may have been withdrawn, for example.
  request.contextValues.get(leaveKey).throwIfAborted();
  checkInspectionRight(request.contextValues.get(rightsKey), request.stream ? undefined : nodeOf(request.message));
  return await next(request);
};

/**
 * Returns the only node that the answer concerns; undefined or "" if it concerns more. Requests that are not listed
 * here require the right to inspect the whole cluster.
 */
function nodeOf(message: Message): string | undefined {
  if (isMessage(message, ExplainRequestSchema) || isMessage(message, ListNodeEndpointsRequestSchema)) {
    return message.nodeName;
  }
  return isMessage(message, ListNodesRequestSchema) ? message.name : undefined;
}
