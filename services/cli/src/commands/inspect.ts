import { type OptionSpec, parseProxyName } from "@kpng/process/options.ts";
import type { Command } from "commander";
import { makeAnalyze } from "../inspect/analyze/analyze.ts";
import { bugReportCommand } from "../inspect/bug-report/bug-report.ts";
import { describeEndpointCommand } from "../inspect/describe/describe-endpoint.ts";
import { describeNodeCommand } from "../inspect/describe/describe-node.ts";
import { describeServiceCommand } from "../inspect/describe/describe-service.ts";
import { explainCommand } from "../inspect/explain.ts";
import { backendCommand } from "../inspect/get/backend.ts";
import { changesCommand } from "../inspect/get/changes.ts";
import { endpointsCommand } from "../inspect/get/endpoints.ts";
import { nodesCommand } from "../inspect/get/nodes.ts";
import { rulesCommand } from "../inspect/get/rules.ts";
import { servicesCommand } from "../inspect/get/services.ts";
import { subscribersCommand } from "../inspect/get/subscribers.ts";
import { viewCommand } from "../inspect/get/view.ts";
import { withRequestErrors } from "../inspect/query/inspect-client.ts";
import type { InspectCommand } from "../inspect/query/inspect-command.ts";
import { progressTransport } from "../inspect/query/progress-transport.ts";
import { recordCommand } from "../inspect/record/record.ts";
import { statusCommand } from "../inspect/status.ts";
import { topCommand } from "../inspect/top.ts";
import { traceCommand } from "../inspect/trace.ts";
import { makeGroup, makeInspectCommand, type WithTransport } from "./inspect-tree.ts";
import { dialRemote, remoteOptions } from "./remote-options.ts";

/**
 * `kpng get|describe|explain|status|analyze|trace|top|record|bug-report`: query a remote watcher, or a backend
 * of this node.
 *
 * `makeKpng` and `makeQueries` add them. Separate from the folder `inspect/`, whose files each have one command and do
 * not know how it is connected, and from `inspect-source.ts`, which queries a watcher in this process.
 */
export function makeInspect(signal: AbortSignal): readonly Command[] {
  const withTransport: WithTransport = async (options, work) => {
    const api = String(options.api ?? "");
    const transport = progressTransport(dialRemote(options), api);
    await withRequestErrors(api, signal, () => work(transport));
  };
  const make = (command: InspectCommand, path = "", more: readonly OptionSpec[] = []): Command =>
    makeInspectCommand(command, [...more, ...remoteOptions], `kpng ${path}${command.name}`, withTransport, signal);
  const lists = [servicesCommand, endpointsCommand, nodesCommand, subscribersCommand, changesCommand];
  const get = [...lists, backendCommand, rulesCommand].map((command) => make(command, "get "));
  return [
    makeGroup("get", [...get, make(viewCommand, "get ", [proxyNameFilter])]),
    makeGroup("describe", [
      ...[describeServiceCommand, describeNodeCommand].map((command) => make(command, "describe ")),
      make(describeEndpointCommand, "describe ", [proxyNameFilter]),
    ]),
    make(explainCommand, "", [proxyNameFilter]),
    make(statusCommand),
    make(makeAnalyze(true)),
    make(traceCommand),
    make(topCommand),
    make(recordCommand),
    make(bugReportCommand),
  ];
}

/** For commands that do not follow a source: a source has this option itself. */
const proxyNameFilter: OptionSpec = {
  flags: "--service-proxy-name <name>",
  description: "only Services with this value of the label service.kubernetes.io/service-proxy-name",
  default: "",
  parse: parseProxyName,
};
