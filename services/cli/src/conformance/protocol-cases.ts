import { setTimeout as pause } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { Feature, type OpItem, type Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  deleteEndpoint,
  deleteService,
  pack,
  put,
  putEndpoint,
  putService,
  putsOf,
  reset,
  type SyncFields,
  sync,
  unknownField,
  unknownOperation,
} from "./operations.ts";
import type { CaseResult } from "./results.ts";
import { type ScriptedStream, ScriptedWatcher } from "./scripted-watcher.ts";
import { type AppliedState, isSameState, type Report, TestedBackend } from "./tested-backend.ts";

/** What a case needs to know about the run. */
interface ProtocolSettings {
  readonly command: readonly string[];
  readonly report: Report;
  /** Time within which a backend must react, in milliseconds. */
  readonly limitMs: number;
}

/** A case about one rule of docs/protocol.md. */
interface ProtocolCase {
  /** *Shape:* `C4`, as in docs/protocol.md, and a letter if the rule has several cases. */
  readonly id: string;
  /** The rule in a few words. */
  readonly rule: string;
  readonly isSlow?: boolean;
  /** Rejects if the backend breaks the rule. Throws {@link NotApplicable} if the rule does not concern this backend. */
  run(play: Play): Promise<void>;
}

/** Thrown by a case that does not concern the backend. */
class NotApplicable extends Error {}

/** A watcher and a backend that is connected to it. */
class Play implements AsyncDisposable {
  readonly settings: ProtocolSettings;
  readonly watcher: ScriptedWatcher;
  backend: TestedBackend;
  #revision = 0n;
  /** State of the last successful check, and the number of reports until then. */
  #lastState: AppliedState = {};
  #checkedCount = 0;
  /** True until the process of the backend has opened a stream. */
  #isFirstStream = true;

  private constructor(settings: ProtocolSettings, watcher: ScriptedWatcher, backend: TestedBackend) {
    this.settings = settings;
    this.watcher = watcher;
    this.backend = backend;
  }

  /** Errors: BAD_OPTION if the backend cannot be started. */
  static async start(settings: ProtocolSettings, isSlow = false): Promise<Play> {
    const watcher = await ScriptedWatcher.start({ isSlow });
    try {
      return new Play(settings, watcher, await startBackend(settings, watcher));
    } catch (error) {
      await watcher[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts another process of the backend, after the first one has ended. */
  async restart(): Promise<void> {
    this.backend = await startBackend(this.settings, this.watcher);
    this.#isFirstStream = true;
  }

  /** Returns the next stream, after its first request. */
  async stream(limitMs = this.settings.limitMs * 2): Promise<ScriptedStream> {
    const { backend } = this;
    const hasEnded = (): Error => new Error(`the backend has ended (${backend.ended})`);
    if (backend.ended !== undefined) throw hasEnded();
    const ended = new Promise<never>((_, reject) => {
      backend.onEnd = () => reject(hasEnded());
    });
    ended.catch(() => undefined);
    const stream = await Promise.race([this.watcher.nextStream(limitMs), ended]);
    await stream.until(() => stream.requests.length > 0, this.settings.limitMs, "sent no request");
    if (this.#isFirstStream) {
      // What an earlier process has saved or installed, and this one has reported before it got anything.
      this.#lastState = (await backend.applied()) ?? this.#lastState;
      this.#checkedCount = backend.states.length;
      this.#isFirstStream = false;
    }
    return stream;
  }

  /** Returns the next stream. Errors: NotApplicable if the backend does not request the feature. */
  async streamWith(feature: "Extended" | "Batches"): Promise<ScriptedStream> {
    const stream = await this.stream();
    if (isFeature(stream, Feature[feature])) return stream;
    throw new NotApplicable(`the backend does not request ${feature}`);
  }

  /** Sends a batch with its marker. Returns the revision. */
  batch(stream: ScriptedStream, operations: readonly OpItem[], fields: SyncFields = {}): bigint {
    this.#revision += 1n;
    const extended = { Revision: this.#revision, Instance: "conformance", TakesAcks: true, AckIntervalMs: 100 };
    stream.send([...operations, sync(isFeature(stream, Feature.Extended) ? { ...extended, ...fields } : {})]);
    return this.#revision;
  }

  /** Sends a state as the first batch of a stream, and waits until the backend has applied it. */
  async whole(stream: ScriptedStream, state: AppliedState): Promise<void> {
    const revision = this.batch(stream, [reset, ...putsOf(state)]);
    await this.applied(stream, state, revision);
  }

  /** Returns the next stream, after its first batch has been applied: this state. */
  async begin(state: AppliedState, limitMs?: number): Promise<ScriptedStream> {
    const stream = await this.stream(limitMs);
    await this.whole(stream, state);
    return stream;
  }

  /** Waits until the backend has applied the state of a revision. */
  async applied(stream: ScriptedStream, state: AppliedState, revision: bigint, limitMs?: number): Promise<void> {
    const limit = limitMs ?? this.settings.limitMs;
    if (this.settings.report === "acks") {
      const isAcked = (): boolean => stream.acks.some(({ applied }) => applied >= revision);
      return stream.until(isAcked, limit, `did not acknowledge revision ${revision}`).catch((error: unknown) => {
        if (stream.acks.length > 0) throw error;
        throw new Error("the backend acknowledges nothing: say what it has applied with --report stdout or --applied");
      });
    }
    const endMs = performance.now() + limit;
    let last = await this.backend.applied();
    while (!isSameState(last, state)) {
      if (performance.now() > endMs) throw new Error(`expected ${show(state)}, but the backend reports ${show(last)}`);
      await pause(20);
      last = await this.backend.applied();
    }
    // A batch takes effect as a whole: between the state before and the new one there is no other.
    const between = this.backend.states.slice(this.#checkedCount).find((seen) => {
      return !isSameState(seen, state) && !isSameState(seen, this.#lastState);
    });
    this.#checkedCount = this.backend.states.length;
    this.#lastState = state;
    if (between !== undefined) throw new Error(`the backend reported ${show(between)} on the way to ${show(state)}`);
  }

  /** Waits, and checks that the backend still has the state, and has had no other one since. */
  async stays(state: AppliedState, stream: ScriptedStream | undefined, ms = quietMs): Promise<void> {
    const { report } = this.settings;
    const countBefore = this.backend.states.length;
    const ackBefore = stream?.acks.length ?? 0;
    await pause(ms);
    if (report === "acks") {
      const more = stream?.acks.slice(ackBefore) ?? [];
      const last = stream?.acks[ackBefore - 1]?.applied ?? 0n;
      const ahead = more.find(({ applied }) => applied > last);
      if (ahead !== undefined) throw new Error(`the backend acknowledged revision ${ahead.applied} too early`);
      return;
    }
    const other = this.backend.states.slice(countBefore).find((seen) => !isSameState(seen, state));
    const now = other ?? (await this.backend.applied());
    if (now === undefined && Object.keys(state).length === 0) return;
    if (!isSameState(now, state))
      throw new Error(`expected still ${show(state)}, but the backend reports ${show(now)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend.kill();
    await this.watcher[Symbol.asyncDispose]();
  }
}

function startBackend(
  { command, report }: ProtocolSettings,
  { address: api }: ScriptedWatcher,
): Promise<TestedBackend> {
  return TestedBackend.start(command, { api, node: nodeName, report });
}

export const nodeName = "conformance-node";

/** How long a case waits for something that must not happen, in milliseconds. */
const quietMs = 700;

/** How long a case waits for the stream after one that ended, in milliseconds: rule C6 allows delays of 30 s. */
const reconnectMs = 40_000;

const web: AppliedState = { "default/web": ["10.1.0.1", "10.1.0.2", "fd00:1::1"] };
const two: AppliedState = { ...web, "kube-system/dns": ["10.1.0.9"] };
const moved: AppliedState = { "default/web": ["10.1.0.7"] };

export const protocolCases: readonly ProtocolCase[] = [
  {
    id: "C1",
    rule: "the first request names the node",
    run: async (play) => {
      const [request] = (await play.stream()).requests;
      if (request?.NodeName !== nodeName) throw new Error(`the request is for node "${request?.NodeName}"`);
    },
  },
  {
    id: "C2a",
    rule: "one request is for one batch: the next one follows the batch",
    run: async (play) => {
      const stream = await play.stream();
      await pause(quietMs);
      if (stream.requests.length > 1) throw new Error("the backend sent a second request before the first batch");
      // The marker does not say that the watcher supports WatchReq.Count.
      await play.whole(stream, web);
      await stream.until(() => stream.requests.length > 1, play.settings.limitMs, "sent no request after the batch");
      await pause(quietMs);
      if (stream.requests.length > 2)
        throw new Error(`the backend sent ${stream.requests.length} requests for one batch`);
    },
  },
  {
    id: "C2b",
    rule: "each of many batches is answered by one request",
    run: async (play) => {
      const stream = await play.begin(web);
      for (let count = 1; count <= 10; count++) {
        const limit = play.settings.limitMs;
        await stream.until(() => stream.requests.length > count, limit, `sent no request after batch ${count}`);
        const isAdded = count % 2 === 1;
        const change = isAdded
          ? putsOf({ "kube-system/dns": ["10.1.0.9"] })
          : [deleteEndpoint("kube-system/dns", "10.1.0.9"), deleteService("kube-system/dns")];
        await play.applied(stream, isAdded ? two : web, play.batch(stream, change));
      }
    },
  },
  {
    id: "C3a",
    rule: "nothing of a first batch takes effect before its Sync",
    run: async (play) => {
      const stream = await play.stream();
      // What an earlier process has installed.
      const before = (await play.backend.applied()) ?? {};
      stream.send([reset, ...putsOf(moved)]);
      await play.stays(before, stream);
      await play.applied(stream, moved, play.batch(stream, []));
    },
  },
  {
    id: "C3b",
    rule: "nothing of a change takes effect before its Sync",
    run: async (play) => {
      const stream = await play.begin(web);
      stream.send([putService("kube-system/dns", "10.96.1.2"), putEndpoint("kube-system/dns", "10.1.0.9")]);
      stream.send([deleteEndpoint("default/web", "10.1.0.1")]);
      await play.stays(web, stream);
      const after = { "default/web": ["10.1.0.2", "fd00:1::1"], "kube-system/dns": ["10.1.0.9"] };
      await play.applied(stream, after, play.batch(stream, []));
    },
  },
  {
    id: "C3c",
    rule: "a value replaces the earlier value of its path completely",
    run: async (play) => {
      const stream = await play.stream();
      const revision = play.batch(stream, [
        reset,
        putService("default/web", "10.96.1.1"),
        putEndpoint("default/web", "10.1.0.1", "pod"),
      ]);
      await play.applied(stream, { "default/web": ["10.1.0.1"] }, revision);
      const next = play.batch(stream, [putEndpoint("default/web", "fd00:1::5", "pod")]);
      await play.applied(stream, { "default/web": ["fd00:1::5"] }, next);
    },
  },
  {
    id: "C3d",
    rule: "a deleted endpoint and a deleted Service are gone",
    run: async (play) => {
      const stream = await play.begin(two);
      const endpoint = play.batch(stream, [deleteEndpoint("default/web", "10.1.0.1")]);
      const fewer = { "default/web": ["10.1.0.2", "fd00:1::1"] };
      await play.applied(stream, { ...two, ...fewer }, endpoint);
      const service = play.batch(stream, [
        deleteEndpoint("kube-system/dns", "10.1.0.9"),
        deleteService("kube-system/dns"),
      ]);
      await play.applied(stream, fewer, service);
    },
  },
  {
    id: "C3e",
    rule: "a new value of a Service leaves its endpoints",
    run: async (play) => {
      const stream = await play.begin(web);
      const changes = [putService("default/web", "10.96.3.1"), putEndpoint("default/web", "10.1.0.3")];
      const more = { "default/web": ["10.1.0.1", "10.1.0.2", "10.1.0.3", "fd00:1::1"] };
      await play.applied(stream, more, play.batch(stream, changes));
    },
  },
  {
    id: "C4a",
    rule: "an empty view is a view: it removes everything",
    run: async (play) => {
      const stream = await play.begin(web);
      await play.applied(stream, {}, play.batch(stream, [reset]));
    },
  },
  {
    id: "C4b",
    rule: "Reset replaces the state at the next Sync, and removes nothing before",
    run: async (play) => {
      const stream = await play.begin(two);
      stream.send([reset]);
      await play.stays(two, stream);
      stream.send(putsOf(moved));
      await play.stays(two, stream);
      await play.applied(stream, moved, play.batch(stream, []));
    },
  },
  {
    id: "C5a",
    rule: "the state stays when the stream ends, and a new stream is opened",
    run: async (play) => {
      const stream = await play.begin(web);
      stream.end();
      const next = await play.stream(reconnectMs);
      await play.stays(web, undefined);
      await play.whole(next, moved);
    },
  },
  {
    id: "C5b",
    rule: "a connection that breaks inside a batch, at any operation, changes nothing",
    run: async (play) => {
      let stream = await play.begin(web);
      const operations = [reset, ...putsOf({ "default/other": ["10.1.0.5"], "default/third": ["10.1.0.6"] })];
      for (let count = 1; count <= operations.length; count++) {
        stream.send(operations.slice(0, count));
        await pause(50);
        play.watcher.cut();
        stream = await play.stream(reconnectMs);
        await play.stays(web, undefined, 100);
      }
      await play.whole(stream, moved);
    },
  },
  {
    id: "C6a",
    rule: "while the watcher refuses, attempts are few, and do not stop",
    run: async (play) => {
      const first = await play.begin(web);
      play.watcher.refusal = new ConnectError("no room", Code.Unavailable);
      first.end();
      await pause(6_000);
      const attempts = play.watcher.refusedCount;
      if (attempts > 15) throw new Error(`the backend made ${attempts} attempts in 6 s`);
      play.watcher.refusal = undefined;
      await play.begin(moved, reconnectMs);
    },
  },
  {
    id: "C6b",
    rule: "after grpc-retry-pushback-ms, the backend comes back at that time, and not before",
    run: async (play) => {
      const stream = await play.begin(web);
      const waitMs = 2_500;
      stream.end(new ConnectError("move", Code.Unavailable, { "grpc-retry-pushback-ms": `${waitMs}` }));
      const startMs = performance.now();
      const next = await play.stream(waitMs + play.settings.limitMs);
      const elapsedMs = performance.now() - startMs;
      if (elapsedMs < waitMs - 200)
        throw new Error(`the backend came back after ${Math.round(elapsedMs)} ms of ${waitMs}`);
      await play.whole(next, web);
    },
  },
  {
    id: "C7a",
    rule: "an item of an unknown Set is ignored",
    run: async (play) => {
      const stream = await play.stream();
      const unknown = put(999 as SetName, "default/odd", Buffer.from([1, 2, 3]));
      await play.applied(stream, web, play.batch(stream, [reset, unknown, ...putsOf(web)]));
    },
  },
  {
    id: "C7b",
    rule: "an unknown field is ignored",
    run: async (play) => {
      const stream = await play.stream();
      const service = putService("default/web", "10.96.1.1", unknownField);
      const endpoints = putsOf(web).slice(1);
      await play.applied(stream, web, play.batch(stream, [reset, service, ...endpoints]));
    },
  },
  {
    id: "C7c",
    rule: "an unknown operation is ignored",
    run: async (play) => {
      const stream = await play.stream();
      await play.applied(stream, web, play.batch(stream, [reset, unknownOperation(), ...putsOf(web)]));
    },
  },
  {
    id: "C8",
    rule: "an endpoint without its Service is a defect: the backend leaves the stream, and keeps its state",
    run: async (play) => {
      const stream = await play.begin(web);
      stream.send([putEndpoint("default/none", "10.1.0.8")]);
      play.batch(stream, []);
      await stream.until(() => stream.isClosed, play.settings.limitMs, "stayed on the stream");
      await play.stays(web, undefined);
      await play.begin(moved, reconnectMs);
    },
  },
  {
    id: "C9a",
    rule: "a batch that arrives byte by byte is a batch",
    isSlow: true,
    run: async (play) => void (await play.begin(two)),
  },
  {
    id: "C9b",
    rule: "a view of 5 000 Services is applied",
    run: async (play) => {
      const stream = await play.stream();
      const names = Array.from({ length: 5_000 }, (_, at) => at);
      const big: AppliedState = Object.fromEntries(
        names.map((at) => [`default/s${at}`, [`10.${100 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`]]),
      );
      const services = names.map((at) => putService(`default/s${at}`, `10.97.${at >> 8}.${at & 255}`));
      const endpoints = Object.entries(big).flatMap(([name, [address = ""]]) => [putEndpoint(name, address)]);
      const revision = play.batch(stream, [reset, ...services, ...endpoints]);
      await play.applied(stream, big, revision, play.settings.limitMs * 6);
    },
  },
  {
    id: "C10",
    rule: "Batch operations are unpacked, if the backend asked for them",
    run: async (play) => {
      const stream = await play.streamWith("Batches");
      // In the batch, paths are not sorted, an item that does not exist is deleted, and one path has two values.
      const operations = [
        ...["kube-system/dns", "default/web"].flatMap((name) => putsOf({ [name]: two[name] ?? [] })),
        deleteEndpoint("default/web", "10.1.0.200"),
        putEndpoint("default/web", "10.1.0.66", "twice"),
        putEndpoint("default/web", "10.1.0.3", "twice"),
      ];
      const more = { ...two, "default/web": ["10.1.0.1", "10.1.0.2", "10.1.0.3", "fd00:1::1"] };
      await play.applied(stream, more, play.batch(stream, [reset, pack(operations)]));
    },
  },
  {
    id: "C11a",
    rule: "acknowledgements are of revisions that were sent, and not more frequent than asked",
    run: async (play) => {
      const stream = await play.stream();
      let revision = play.batch(stream, [reset, ...putsOf(web)], { AckIntervalMs: 500 });
      for (let count = 0; count < 8; count++) {
        await pause(100);
        revision = play.batch(stream, [putService("default/web", `10.96.2.${count}`)], { AckIntervalMs: 500 });
      }
      await pause(1_500);
      const { acks } = stream;
      if (acks.length === 0) throw new NotApplicable("the backend does not acknowledge");
      const early = acks.find(({ applied, sent }) => applied > sent);
      if (early !== undefined) throw new Error(`it acknowledged ${early.applied}, and only ${early.sent} was sent`);
      const isLast = (): boolean => acks.at(-1)?.applied === revision;
      await stream.until(isLast, play.settings.limitMs, `did not acknowledge the last revision, ${revision}`);
      // Counted over the whole time, because a busy machine may deliver two at once.
      const elapsedMs = (acks.at(-1)?.atMs ?? 0) - (acks[0]?.atMs ?? 0);
      if (acks.length > elapsedMs / 500 + 2) {
        throw new Error(`${acks.length} acknowledgements in ${Math.round(elapsedMs)} ms; AckIntervalMs is 500`);
      }
    },
  },
  {
    id: "C11b",
    rule: "without TakesAcks there are no acknowledgements: an old watcher would answer them with batches",
    run: async (play) => {
      const stream = await play.streamWith("Extended");
      play.batch(stream, [reset, ...putsOf(web)], { TakesAcks: false });
      await pause(1_500);
      if (stream.acks.length > 0) throw new Error("the backend acknowledged although the marker has no TakesAcks");
    },
  },
  {
    id: "C12",
    rule: "an older state does not replace a newer one",
    run: async (play) => {
      const stream = await play.streamWith("Extended");
      const at = (version: bigint) => ({
        Position: {
          ...{ Source: "kube:cluster", Services: version, Slices: version, Nodes: version },
          ...{ CurrentServices: version, CurrentSlices: version, CurrentNodes: version },
        },
      });
      await play.applied(stream, web, play.batch(stream, [reset, ...putsOf(web)], at(1_000n)));
      stream.end();
      const old = await play.stream(reconnectMs);
      play.batch(old, [reset, ...putsOf(moved)], at(500n));
      await play.stays(web, old, 1_500);
      old.end();
      const next = await play.stream(70_000);
      await play.applied(next, two, play.batch(next, [reset, ...putsOf(two)], at(2_000n)));
    },
  },
  {
    id: "C13",
    rule: "SIGTERM ends the backend within 30 s with exit code 0",
    run: async (play) => {
      await play.begin(web);
      play.backend.signal("SIGTERM");
      await play.backend.untilEnded(30_000);
      if (play.backend.ended !== "exit code 0") throw new Error(`the backend ended with ${play.backend.ended}`);
    },
  },
  {
    id: "C14",
    rule: "a backend that was killed reaches the whole state when it runs again",
    run: async (play) => {
      await play.begin(two);
      await play.backend.kill();
      await play.restart();
      await play.begin(moved);
    },
  },
];

function isFeature(stream: ScriptedStream, feature: Feature): boolean {
  return stream.requests[0]?.Features.includes(feature) === true;
}

function show(state: AppliedState | undefined): string {
  if (state === undefined) return "nothing";
  const text = JSON.stringify(state);
  return text.length > 300 ? `${text.slice(0, 300)}… (${Object.keys(state).length} Services)` : text;
}

/** Runs one case with a backend of its own. The case fails as soon as `interrupted` resolves. */
export async function runCase(
  one: ProtocolCase,
  settings: ProtocolSettings,
  interrupted: Promise<void>,
): Promise<CaseResult> {
  const startMs = performance.now();
  const end = (kind: CaseResult["kind"], reason = ""): CaseResult => {
    return { id: one.id, rule: one.rule, kind, reason, elapsedMs: performance.now() - startMs };
  };
  await using play = await Play.start(settings, one.isSlow);
  try {
    await Promise.race([one.run(play), interrupted.then(() => Promise.reject(new Error("interrupted")))]);
    return end("passed");
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (error instanceof NotApplicable) return end("not-applicable", text);
    const { ended, errors } = play.backend;
    const exit = ended === undefined || text.includes(ended) ? "" : ` (the backend has ended: ${ended})`;
    const said = errors.trimEnd().split("\n").slice(-5).join("\n");
    return end("failed", `${text}${exit}${said === "" ? "" : `\nThe backend said last:\n${said}`}`);
  }
}
