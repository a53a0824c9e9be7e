import {
  closeSync,
  createReadStream,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
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
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { parseDurationMs, parseNodeName, parseNonEmptyText, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import packageJson from "../../package.json" with { type: "json" };
import { type InspectCommand, inspectClient, pageSize, readPages } from "./client.ts";
import { findFindings, formatFindings, readWatcherState } from "./findings.ts";
import { oneLine } from "./print/text.ts";
import { openPrivateFile, writeRecording } from "./record.ts";

/**
 * `kpng bug-report`: collects in one archive what a maintainer asks for: a recording, the state of all nodes and
 * streams, findings, versions, and on request metrics, backends and logs. `kpng replay` reads the recording.
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
  ],
  examples: `
A part that cannot be collected becomes a line of errors.txt. The archive contains names, addresses, labels and errors
of the cluster: review it before you share it.

Examples:
  COMMAND --for 1m --metrics http://127.0.0.1:12091/metrics
  kubectl logs -n kube-system ds/kpng-nft | COMMAND --log -
  COMMAND --backend unix:///run/kpng/nft.sock --node n1
`,
  run: async (transport, _words, options, signal) => {
    const path = String(options.output);
    const report = new Report();
    const folder = mkdtempSync(join(tmpdir(), "kpng-bug-report-"));
    const backends = options.backend as readonly string[];
    const metrics = options.metrics as readonly string[];
    const logs = options.log as readonly string[];
    try {
      await collectWatcher(report, transport, signal, {
        path: join(folder, "recording.jsonl.gz"),
        node: String(options.node),
        durationMs: Number(options.for),
      });
    } catch (error) {
      if (backends.length + metrics.length + logs.length === 0) throw error;
      report.addError("watcher", error);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    for (const [index, api] of backends.entries()) {
      await report.add(`backend-${index + 1}.json`, () => readBackend(api));
    }
    for (const [index, url] of metrics.entries()) {
      await report.add(`metrics-${index + 1}.txt`, () => readMetrics(url));
    }
    for (const [index, file] of logs.entries()) {
      await report.add(`log-${index + 1}.txt`, () => readLog(file));
    }
    const { bytes, names, errors } = report.pack(Date.now());
    const file = openPrivateFile(path);
    try {
      writeFileSync(file, bytes);
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
    } finally {
      closeSync(file);
    }
    for (const error of errors) process.stderr.write(`warning: ${oneLine(error)}\n`);
    process.stderr.write(`report written to ${path}: ${names.join(", ")}\n`);
  },
};

/** Size of a log's end that is kept. */
const maxLogBytes = 4 * 1024 * 1024;

/** Size of the metrics of a process that is kept. */
const maxMetricsBytes = 32 * 1024 * 1024;

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
  await report.add("recording.jsonl.gz", async () => {
    await writeRecording(transport, recording, signal).catch((error: unknown) => {
      if (!existsSync(recording.path)) throw error;
      report.addError("recording.jsonl.gz", error);
    });
    return readFileSync(recording.path);
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
  const { username, password } = new URL(url);
  // The error of fetch would contain them.
  if (username + password !== "") throw new Error("credentials in the URL are not supported");
  const response = await fetch(url, { signal: AbortSignal.timeout(metricsLimitMs) });
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return response.body === null ? "" : await readEnd(response.body, maxMetricsBytes);
}

async function readLog(file: string): Promise<string> {
  if (file === "-") return await readEnd(process.stdin, maxLogBytes);
  // One byte more, so that `readEnd` sees that the log was cut.
  const start = Math.max(0, statSync(file).size - maxLogBytes - 1);
  return await readEnd(createReadStream(file, { start }), maxLogBytes);
}

/**
 * Reads at most the last `maxBytes` of a stream. If it is cut, the text begins with a whole line. *Bound:* `maxBytes` and one chunk.
 */
async function readEnd(stream: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  let isCut = false;
  for await (const chunk of stream) {
    chunks.push(chunk);
    length += chunk.length;
    isCut ||= length > maxBytes;
    while (length - (chunks[0]?.length ?? 0) >= maxBytes) length -= chunks.shift()?.length ?? 0;
  }
  const text = Buffer.concat(chunks).subarray(-maxBytes).toString();
  return isCut ? text.slice(text.indexOf("\n") + 1) : text;
}

/** Files of the archive, as they are collected. */
class Report {
  readonly #files: { readonly name: string; readonly content: Uint8Array }[] = [];
  readonly #errors: string[] = [];

  /** Adds a file; a failure becomes a line of errors.txt. */
  async add(name: string, read: () => Promise<Uint8Array | JsonValue>): Promise<void> {
    try {
      const content = await read();
      this.#files.push({ name, content: content instanceof Uint8Array ? content : Buffer.from(textOf(content)) });
    } catch (error) {
      this.addError(name, error);
    }
  }

  addError(name: string, error: unknown): void {
    this.#errors.push(`${name}: ${reasonOf(error)}`);
  }

  pack(nowMs: number): {
    readonly bytes: Buffer;
    readonly names: readonly string[];
    readonly errors: readonly string[];
  } {
    const errors = { name: "errors.txt", content: Buffer.from(`${this.#errors.join("\n")}\n`) };
    const files = this.#errors.length === 0 ? this.#files : [...this.#files, errors];
    const inFolder = files.map(({ name, content }) => ({ name: `kpng-bug-report/${name}`, content }));
    const bytes = gzipSync(packTar(inFolder, Math.floor(nowMs / 1_000)));
    return { bytes, names: files.map(({ name }) => name), errors: this.#errors };
  }
}

function textOf(content: JsonValue): string {
  return typeof content === "string" ? content : `${JSON.stringify(content, undefined, 2)}\n`;
}

interface TarFile {
  /** Relative path of at most 100 ASCII characters. */
  readonly name: string;
  readonly content: Uint8Array;
}

const blockBytes = 512;

/**
 * Packs files as a tar archive in the format ustar, readable by their owner. Pure. `bugReportCommand` compresses the
 * result. Source: POSIX pax, "ustar Interchange Format".
 */
function packTar(files: readonly TarFile[], timeSeconds: number): Buffer {
  const parts = files.flatMap(({ name, content }) => {
    const padding = (blockBytes - (content.length % blockBytes)) % blockBytes;
    return [header(name, content.length, timeSeconds), content, Buffer.alloc(padding)];
  });
  // Two empty blocks end an archive.
  return Buffer.concat([...parts, Buffer.alloc(2 * blockBytes)]);
}

function header(name: string, size: number, timeSeconds: number): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;
  block.write(name, 0, 100, "latin1");
  block.write(octal(0o600, 8), 100);
  block.write(octal(0, 8), 108);
  block.write(octal(0, 8), 116);
  block.write(octal(size, 12), 124);
  block.write(octal(timeSeconds, 12), 136);
  // The checksum is computed with spaces in its own place.
  block.write("        ", 148);
  block.write("0", 156);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}
