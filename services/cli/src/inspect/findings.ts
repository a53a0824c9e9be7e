import { create } from "@bufbuild/protobuf";
import { type Finding, FindingSchema, FindingSeverity } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import {
  type GetStatusResponse,
  type ListFindingsResponse,
  ListFindingsResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { failureHint } from "@kpng/process/connection/failure-hint.ts";
import type { InspectCommand } from "./client.ts";
import { namespaceOptions, splitName } from "./list.ts";
import { printMessages, readOutputOptions, textOrJsonOption } from "./print/output.ts";
import { formatCount, oneLine } from "./print/text.ts";
import { type Answer, askAll, repliesOf } from "./replicas.ts";

/** `kpng analyze`: prints what is probably wrong with a cluster and its nodes, and what to do about it. */
export const analyzeCommand: InspectCommand = {
  name: "analyze",
  description: "what is probably wrong, and what to do about it",
  options: [...namespaceOptions, textOrJsonOption("KPNG_ANALYZE_OUTPUT")],
  examples: `
The exit code is 1 if there is a finding of severity error, and 0 otherwise.

Examples:
  COMMAND
  COMMAND -n shop
  COMMAND -o json | jq '.items[] | select(.severity == "error")'
`,
  run: async ({ replicas, options }) => {
    const { namespace } = splitName(undefined, options);
    const answers = await askAll(replicas, async (client) => ({
      status: await client.getStatus({}),
      findings: await client.listFindings({ namespace }),
    }));
    const response = mergeFindings(answers);
    if (options.output === "json") printMessages(FindingSchema, response.findings, await readOutputOptions(options));
    else process.stdout.write(formatFindings(response));
    if (response.errorCount > 0) process.exitCode = 1;
  },
};

/**
 * Joins the findings of several replicas. Each node follows only one replica, so a node counts as having no backend
 * only if it follows none of them. It is also a finding if a replica does not answer or if replicas hold different
 * numbers of objects. The counts cover only findings that the replicas sent, up to 1 000 each. Pure.
 */
export function mergeFindings(
  answers: readonly Answer<{ readonly status: GetStatusResponse; readonly findings: ListFindingsResponse }>[],
): ListFindingsResponse {
  const replies = repliesOf(answers).map(({ api, value }) => ({ api, ...value }));
  const [first, ...others] = replies;
  if (first !== undefined && answers.length === 1) return first.findings;
  const findings: Finding[] = [];
  const add = (severity: FindingSeverity, code: string, api: string, text: string, remedy: string): unknown =>
    findings.push(create(FindingSchema, { severity, code, subject: `watcher ${api}`, text, remedy }));
  for (const one of answers) {
    if ("value" in one) continue;
    const remedy = failureHint(one.reason) ?? "is it running?";
    add(FindingSeverity.ERROR, "replica-silent", one.api, `it does not answer: ${one.reason}`, remedy);
  }
  const differing = others.find(({ status }) => countObjects(status) !== countObjects(first?.status));
  if (first !== undefined && differing !== undefined) {
    const text = `it holds ${countObjects(differing.status)}, and ${first.api} ${countObjects(first.status)}`;
    const remedy = "if this lasts, the API server of one of them lags: compare kpng get changes of both";
    add(FindingSeverity.WARNING, "replicas-differ", differing.api, text, remedy);
  }
  const reported = replies.flatMap(({ api, findings: list }) => list.findings.map((one) => ({ api, one })));
  const groups = Map.groupBy(reported, ({ one }) => `${one.code} ${one.subject} ${one.text}`);
  for (const same of groups.values()) {
    const isEverywhere = same.length === replies.length;
    for (const [index, { api, one }] of same.entries()) {
      if (one.subject === "watcher" && !isEverywhere) findings.push({ ...one, subject: `watcher ${api}` });
      else if (index === 0 && (isEverywhere || one.code !== "node-absent")) findings.push(one);
    }
  }
  findings.sort((one, other) => other.severity - one.severity);
  const errorCount = findings.filter(({ severity }) => severity === FindingSeverity.ERROR).length;
  return create(ListFindingsResponseSchema, { findings, errorCount, warningCount: findings.length - errorCount });
}

/** *Shape:* `2 Services, 4 endpoints, 2 slices, 3 nodes`; "nothing yet" before the first list. */
export function countObjects(status: GetStatusResponse | undefined): string {
  if (status?.isSynced !== true) return "nothing yet";
  return [
    formatCount(status.serviceCount, "Service"),
    formatCount(status.endpointCount, "endpoint"),
    formatCount(status.sliceCount, "slice"),
    formatCount(status.nodeCount, "node"),
  ].join(", ");
}

/** Returns the word of a severity: "error" or "warning". */
export function severityOf({ severity }: Finding): string {
  return severity === FindingSeverity.ERROR ? "error" : "warning";
}

/** *Shape:* `1 error, 2 warnings`. */
export function countFindings({ errorCount, warningCount }: ListFindingsResponse): string {
  return `${formatCount(errorCount, "error")}, ${formatCount(warningCount, "warning")}`;
}

/** Formats each finding in two lines, the second with the remedy. */
function formatFindings(response: ListFindingsResponse): string {
  const { findings, errorCount, warningCount } = response;
  if (findings.length === 0) return "No findings.\n";
  const width = findings.reduce((max, { subject }) => Math.max(max, oneLine(subject).length), 0);
  const body = findings
    .map((finding) => {
      const [subject, text, remedy] = [finding.subject, finding.text, finding.remedy].map(oneLine);
      return `${severityOf(finding).padEnd(7)}   ${subject?.padEnd(width)}   ${text}\n          → ${remedy}\n`;
    })
    .join("");
  const more = errorCount + warningCount - findings.length;
  return `${body}${more === 0 ? "" : `… and ${more} more\n`}\n${countFindings(response)}\n`;
}
