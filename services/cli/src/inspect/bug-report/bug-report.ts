import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { release, tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  ListRulesResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type Subscriber, SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { parseDurationMs, parseNodeName, parseNonEmptyText, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { formatFindings } from "../analyze/analyze.ts";
import { findFindings } from "../analyze/find-findings.ts";
import { readWatcherState, type WatcherState } from "../analyze/read-state.ts";
import { oneLine } from "../print/terminal-text.ts";
import { inspectClient, pageSize, readPages } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { writeRecording } from "../record/record.ts";
import { Redactor } from "./redactor.ts";
import { packTar } from "./tar.ts";

/**
 * `kpng bug-report`: collects in one archive what a maintainer asks for: a recording, the state of all nodes and
 * streams, findings, versions, and on request metrics, backends and logs. `makeInspect` adds it. `kpng replay` reads
 * the recording.
 */
export const bugReportCommand: InspectCommand = {
  name: "bug-report",
  description: "collect a recording, statuses, versions, metrics and logs in one archive",
  options: [
    {
      flags: "-o, --output <file>",
      description: "archive to write",
      default: "kpng-bug-report.tar.gz",
      env: "KPNG_BUG_REPORT",
      parse: parseNonEmptyText,
    },
    {
      flags: "--for <duration>",
      description: "how long to record changes (0: only the state)",
      default: 0,
      parse: parseDurationMs,
    },
    {
      flags: "--node <name>",
      description: "also record how this node uses each endpoint, with the reason",
      default: "",
      parse: parseNodeName,
    },
    repeatable(
      "--backend <address>",
      "socket of a backend (its --inspect-socket), as unix:///path: its status and rules",
    ),
    repeatable("--metrics <url>", "metrics of a process, such as http://127.0.0.1:12091/metrics"),
    repeatable("--log <file>", "log file to include, or - for standard input; the last 4 MiB"),
    {
      flags: "--redact",
      description: "replace names and addresses by made-up ones; instead of the recording, the archive has the state",
    },
  ],
  examples: `
A part that cannot be collected becomes a line of errors.txt. Without --redact, the archive contains names, addresses,
labels and errors of the cluster: review it before you share it.

Examples:
  COMMAND --for 1m --metrics http://127.0.0.1:12091/metrics
  kubectl logs -n kube-system ds/kpng-nft | COMMAND --redact --log -
  COMMAND --backend unix:///run/kpng/nft.sock --node n1
`,
  run: async (transport, _words, options, signal) => {
    const path = String(options.output);
    const report = new Report(options.redact === true);
    const folder = mkdtempSync(join(tmpdir(), "kpng-bug-report-"));
    try {
      await collectWatcher(report, transport, signal, {
        path: join(folder, "recording.jsonl.gz"),
        node: String(options.node),
        durationMs: Number(options.for),
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    for (const [index, api] of (options.backend as readonly string[]).entries()) {
      await report.add(`backend-${index + 1}.json`, () => readBackend(api));
    }
    for (const [index, url] of (options.metrics as readonly string[]).entries()) {
      await report.add(`metrics-${index + 1}.txt`, () => readMetrics(url));
    }
    for (const [index, file] of (options.log as readonly string[]).entries()) {
      await report.add(`log-${index + 1}.txt`, async () =>
        readFileSync(file === "-" ? 0 : file)
          .subarray(-maxLogBytes)
          .toString(),
      );
    }
    const { bytes, names, errors } = report.pack(Date.now());
    try {
      writeFileSync(path, bytes, { mode: 0o600 });
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
    }
    for (const error of errors) process.stderr.write(`warning: ${oneLine(error)}\n`);
    process.stderr.write(`report written to ${path}: ${names.join(", ")}\n`);
  },
};

/** Size of a log's end that is kept. */
const maxLogBytes = 4 * 1024 * 1024;

/** Longest time for one request of metrics, in milliseconds. */
const metricsLimitMs = 10_000;

async function collectWatcher(
  report: Report,
  transport: Transport,
  signal: AbortSignal,
  recording: { readonly path: string; readonly node: string; readonly durationMs: number },
): Promise<void> {
  const client = inspectClient(transport);
  const state = await readWatcherState(client);
  const subscribers = await readPages(
    (pageToken) => client.listSubscribers({ pageSize, pageToken }),
    (page) => page.subscribers,
  );
  report.addNames(state, subscribers);
  const json = <D extends DescMessage>(schema: D, rows: readonly MessageShape<D>[]) =>
    rows.map((row) => toJson(schema, row));
  const host = { kpng: packageJson.version, nodejs: process.version, kernel: release(), architecture: process.arch };
  const programs = subscribers.map(({ program, version }) => `${program} ${version}`);
  await report.add("versions.json", async () => ({
    ...host,
    watcher: state.status.version,
    programs: [...new Set(programs)],
  }));
  await report.add("status.json", async () => toJson(GetStatusResponseSchema, state.status));
  await report.add("nodes.json", async () => json(NodeSchema, state.nodes));
  await report.add("subscribers.json", async () => json(SubscriberSchema, subscribers));
  await report.add("findings.txt", async () => formatFindings(findFindings(state, { hasNodes: true })));
  await report.add(report.isRedacted ? "state.yaml" : "recording.jsonl.gz", async () => {
    await writeRecording(transport, recording, signal);
    if (!report.isRedacted) return readFileSync(recording.path);
    // Its code is that of a source, which the other queries need not load.
    const { redactedState } = await import("./redacted-state.ts");
    return redactedState(recording.path, report.redactor);
  });
}

async function readBackend(api: string) {
  const client = createClient(BackendInspectService, dial({ api }));
  const backend = toJson(GetBackendResponseSchema, await client.getBackend({}));
  const rules = await client.listRules({}).then(
    (response) => toJson(ListRulesResponseSchema, response),
    (error: unknown) => reasonOf(error),
  );
  return { backend, rules };
}

async function readMetrics(url: string): Promise<string> {
  const response = await fetch(url, { signal: AbortSignal.timeout(metricsLimitMs) });
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return await response.text();
}

/** Files of the archive, as they are collected. */
class Report {
  readonly isRedacted: boolean;
  readonly redactor = new Redactor();
  readonly #files: { readonly name: string; readonly content: Uint8Array }[] = [];
  readonly #errors: string[] = [];

  constructor(isRedacted: boolean) {
    this.isRedacted = isRedacted;
  }

  /** The names that are redacted: those of the cluster's objects, and the values of their labels. */
  addNames({ services, endpoints, nodes }: WatcherState, subscribers: readonly Subscriber[]): void {
    const add = (kind: string, ...names: readonly string[]): void => {
      for (const name of names) this.redactor.add(kind, name);
    };
    for (const { namespace, name, labels } of services) {
      add("namespace", namespace);
      add("service", name);
      add("label", ...Object.values(labels));
    }
    for (const { name, zone, labels } of nodes) {
      add("node", name);
      add("zone", zone);
      add("label", ...Object.values(labels));
    }
    for (const { namespace, service, slice, pod, node, zone } of endpoints) {
      add("namespace", namespace);
      add("service", service);
      add("slice", slice);
      add("pod", pod);
      add("node", node);
      add("zone", zone);
    }
    for (const { node } of subscribers) add("node", node);
  }

  /** Adds a file; a failure becomes a line of errors.txt. Bytes are not redacted. */
  async add(name: string, read: () => Promise<Uint8Array | JsonValue>): Promise<void> {
    try {
      const content = await read();
      this.#files.push({ name, content: content instanceof Uint8Array ? content : Buffer.from(this.#textOf(content)) });
    } catch (error) {
      this.#errors.push(`${name}: ${reasonOf(error)}`);
    }
  }

  pack(nowMs: number): {
    readonly bytes: Buffer;
    readonly names: readonly string[];
    readonly errors: readonly string[];
  } {
    const errors = { name: "errors.txt", content: Buffer.from(this.#textOf(`${this.#errors.join("\n")}\n`)) };
    const files = this.#errors.length === 0 ? this.#files : [...this.#files, errors];
    const inFolder = files.map(({ name, content }) => ({ name: `kpng-bug-report/${name}`, content }));
    const bytes = gzipSync(packTar(inFolder, Math.floor(nowMs / 1_000)));
    return { bytes, names: files.map(({ name }) => name), errors: this.#errors };
  }

  #textOf(content: JsonValue): string {
    if (typeof content === "string") return this.isRedacted ? this.redactor.text(content) : content;
    return `${JSON.stringify(this.isRedacted ? this.redactor.value(content) : content, undefined, 2)}\n`;
  }
}
