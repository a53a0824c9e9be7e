// A backend of about a hundred lines, which is right, or wrong in one way: `faulty-client.ts API NODE [FAULT]`. It
// prints what it has applied, as `kpng conformance protocol --report stdout` expects it.
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { EndpointSchema, Feature, type OpItem, Set as SetName, Sets } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import type { Fault } from "./faults.ts";

const [api = "", node = "", fault = ""] = process.argv.slice(2);
const is = (name: Fault): boolean => fault === name;

type State = Map<string, Map<string, readonly string[]>>;

let applied: State = new Map();
let version = 0n;
let attempt = 0;

function report(state: State): void {
  const services = [...state].map(([name, endpoints]) => [name, [...endpoints.values()].flat().sort()]);
  process.stdout.write(`${JSON.stringify({ services: Object.fromEntries(services) })}\n`);
}

function apply(state: State, { Op: op }: OpItem): State {
  if (op.case === "Reset") {
    if (is("removes-at-reset")) report(new Map());
    return is("ignores-reset") ? state : new Map();
  }
  if (op.case === "Set") {
    const { Set: set, Path: path = "" } = op.value.Ref ?? {};
    if (set === SetName.ServicesSet) {
      state.set(path, is("service-forgets-endpoints") ? new Map() : (state.get(path) ?? new Map()));
    } else if (set === SetName.EndpointsSet) {
      const { service, key } = split(path);
      const { V4 = [], V6 = [] } = fromBinary(EndpointSchema, op.value.Bytes).IPs ?? {};
      if (!state.has(service) && !is("makes-up-services")) throw new Error(`endpoint of unknown Service ${service}`);
      const endpoints = state.get(service) ?? new Map<string, readonly string[]>();
      const before = is("merges-values") ? (endpoints.get(key) ?? []) : [];
      state.set(service, endpoints.set(key, [...before, ...(is("only-ipv4") ? V4 : [...V4, ...V6])]));
    } else if (is("fails-at-unknown-sets")) throw new Error(`unknown set ${set}`);
  } else if (op.case === "Delete") {
    const { Set: set, Path: path } = op.value;
    if (set === SetName.ServicesSet && !is("forgets-service-deletes")) state.delete(path);
    const { service, key } = split(path);
    if (set === SetName.EndpointsSet && !is("forgets-endpoint-deletes")) state.get(service)?.delete(key);
  } else if (op.case === undefined && is("fails-at-unknown-operations")) throw new Error("unknown operation");
  return state;
}

function split(path: string): { readonly service: string; readonly key: string } {
  const slash = path.lastIndexOf("/");
  return { service: path.slice(0, slash), key: path.slice(slash + 1) };
}

const copy = (state: State): State => new Map([...state].map(([name, endpoints]) => [name, new Map(endpoints)]));

async function follow(signal: AbortSignal): Promise<void> {
  let due = is("asks-twice") ? 2 : 1;
  let wake = Promise.withResolvers<void>();
  let revision = 0n;
  let ack: bigint | undefined;
  const acknowledge = (applied: bigint): void => {
    ack = applied;
    wake.resolve();
  };
  async function* requests() {
    for (;;) {
      if (due === 0 && ack === undefined) await wake.promise;
      wake = Promise.withResolvers<void>();
      if (ack !== undefined) {
        const Applied = ack;
        ack = undefined;
        yield { Ack: { Applied } };
      }
      if (due === 0) continue;
      due -= 1;
      yield { NodeName: is("asks-for-another-node") ? "other" : node, Features: [Feature.Extended] };
    }
  }
  let staged = copy(applied);
  let ops = 0;
  for await (const item of createClient(Sets, dial({ api })).watch(requests(), { signal })) {
    attempt = 0;
    ops += 1;
    if (item.Op.case !== "Sync") {
      staged = apply(staged, item);
      if (is("applies-before-sync")) report(staged);
      if (is("stops-after-1000") && ops > 1_000) staged = copy(applied);
      continue;
    }
    const { Position: position, Revision, TakesAcks } = item.Op.value;
    if (is("acknowledges-early") && TakesAcks && revision === 0n) {
      acknowledge(Revision + 1n);
      setTimeout(() => acknowledge(revision), 1_500);
    }
    revision = Revision;
    if (position !== undefined && !is("accepts-older")) {
      if (position.Services < version) throw new Error("an older state");
      version = position.Services;
    }
    if (is("ignores-empty-views") && staged.size === 0) staged = copy(applied);
    applied = copy(staged);
    report(applied);
    due += is("asks-twice") ? 2 : 1;
    if (!is("never-asks-again")) wake.resolve();
  }
}

process.on("SIGTERM", () => (is("ignores-sigterm") ? undefined : process.exit(is("fails-at-sigterm") ? 1 : 0)));
for (;;) {
  let waitMs = Math.min(1_000, 50 * 2 ** attempt++);
  const stream = new AbortController();
  try {
    await follow(stream.signal);
  } catch (error) {
    stream.abort();
    const { code, metadata } = ConnectError.from(error);
    if (is("gives-up")) process.exit(0);
    if (is("clears-at-the-end")) {
      applied = new Map();
      report(applied);
    }
    if (is("exits-when-refused") && code === Code.Unavailable) process.exit(1);
    const pushback = Number(metadata.get("grpc-retry-pushback-ms") ?? 0);
    if (!is("ignores-pushback")) waitMs = Math.max(waitMs, pushback);
  }
  if (!is("retries-without-delay")) await new Promise((resolve) => setTimeout(resolve, waitMs));
}
