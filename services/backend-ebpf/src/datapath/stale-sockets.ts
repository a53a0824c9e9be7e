import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";
import { addressAndPort } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { endpointOfMember, parseConnectedPeers } from "../tables/udp-peers.ts";

const timeoutMs = 10_000;
/** Time between two searches, in milliseconds: one reads the list of processes. */
const pauseMs = 1_000;
/** Endpoints that wait for a search; more are left to their sockets, which a deleted node could leave behind. */
const maxGone = 1_000;
/** Endpoints in one call of `ss`, whose filter has a limited length. */
const maxInFilter = 50;

/** Options of {@link StaleSockets}. */
export interface StaleSocketsOptions {
  readonly log: Log;
  /** Whether sockets in other network namespaces than the node's are served. */
  readonly isForPods: boolean;
  /** Resolves when no program can choose an endpoint any more that was removed before. */
  readonly settle: () => Promise<void>;
}

/**
 * Ends UDP sockets that are connected to an endpoint which has gone: the process gets ECONNABORTED, and can connect
 * again, to a living endpoint. Without it, the datagrams of such a socket are lost for as long as it exists.
 * Connections of TCP end by themselves. It is the counterpart of conntrack's stale flows, which `StaleFlowCleaner` of
 * the kit deletes.
 *
 * `SocketRuleSet` calls `end` after each commit. The search runs beside the next syncs, to not delay them: a
 * process cannot enter the network namespace of a pod without leaving its own, so `ss` runs in each that has such a
 * socket. Failures leave the sockets as they are, and the first is logged.
 *
 * *Bound:* one search a second, 1 000 endpoints that wait for one.
 */
export class StaleSockets {
  readonly #options: StaleSocketsOptions;
  readonly #stop = new AbortController();
  readonly #gone = new Set<string>();
  /** Of each family: removes the endpoints that serve now. */
  readonly #removals = new Set<(endpoints: Set<string>) => void>();
  #search: Promise<void> | undefined;
  #isFailureLogged = false;

  constructor(options: StaleSocketsOptions) {
    this.#options = options;
  }

  /**
   * Requests a search for sockets of these endpoints. *Shape:* as `endpointText`. `removeServed` is asked before the
   * search, because an endpoint may serve another Service, or may have come back.
   */
  end(endpoints: Iterable<string>, removeServed: (endpoints: Set<string>) => void): void {
    this.#removals.add(removeServed);
    for (const endpoint of endpoints) if (this.#gone.size < maxGone) this.#gone.add(endpoint);
    if (this.#gone.size === 0 || this.#stop.signal.aborted) return;
    this.#search ??= this.#run().finally(() => {
      this.#search = undefined;
    });
  }

  /** Ends the work; resolves when a search that has begun has ended. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#search;
  }

  async #run(): Promise<void> {
    while (this.#gone.size > 0) {
      await this.#options.settle();
      const due = new Set(this.#gone);
      this.#gone.clear();
      for (const removeServed of this.#removals) removeServed(due);
      if (due.size > 0) await this.#searchAll(due);
      if (this.#stop.signal.aborted) return;
      await waitMs(pauseMs, this.#stop.signal);
    }
  }

  async #searchAll(due: ReadonlySet<string>): Promise<void> {
    let ended = 0;
    const namespaces = this.#options.isForPods ? findNamespaces() : { processes: ["self"], hidden: 0 };
    if (namespaces.hidden > 0) {
      this.#warn(`the network namespaces of ${namespaces.hidden} processes cannot be seen (capability SYS_PTRACE)`);
    }
    for (const processId of namespaces.processes) {
      // An endpoint may have come back since the search began.
      const left = new Set(due);
      for (const removeServed of this.#removals) removeServed(left);
      const before = connectedTo(processId, left);
      for (let at = 0; at < before.length; at += maxInFilter) {
        await this.#kill(processId, before.slice(at, at + maxInFilter));
      }
      if (before.length === 0) continue;
      const open = connectedTo(processId, left);
      ended += before.length - open.length;
      // The kernel says nothing if it cannot end sockets.
      if (open.length > 0) this.#warn("they are still open: is the kernel without CONFIG_INET_DIAG_DESTROY?");
    }
    if (ended > 0) this.#options.log.info("udp sockets of removed endpoints ended", { endpoints: ended });
  }

  async #kill(processId: string, endpoints: readonly string[]): Promise<void> {
    const filter = endpoints.flatMap((each, index) => [...(index === 0 ? [] : ["or"]), "dst", placeOf(each)]);
    const enter = processId === "self" ? [] : ["nsenter", `--net=/proc/${processId}/ns/net`];
    const command = [...enter, "ss", "-K", "-H", "-n", "-u", ...filter];
    const end = await runProgram(command, { timeoutMs, env: toolEnvironment() });
    if (end.kind === "exited" && end.exitCode === 0) return;
    const said = "stderr" in end ? `: ${end.stderr.trim().slice(0, 500)}` : "";
    this.#warn(`${command.slice(0, enter.length + 2).join(" ")} failed (${describeEnd(end, timeoutMs)})${said}`);
  }

  #warn(reason: string): void {
    if (this.#isFailureLogged) return;
    this.#isFailureLogged = true;
    this.#options.log.error("connected udp sockets of removed endpoints not ended: their datagrams are lost", {
      reason,
    });
  }
}

const placeOf = (endpoint: string): string => {
  const { address, port } = endpointOfMember(endpoint);
  return addressAndPort(address, port);
};

/**
 * Finds one process in each network namespace, "self" for our own, which is the first, and counts the processes whose
 * namespace is hidden.
 */
function findNamespaces(): { readonly processes: readonly string[]; readonly hidden: number } {
  const found = new Map<string, string>();
  let hidden = 0;
  for (const id of ["self", ...readdirSync("/proc").filter((name) => /^\d+$/.test(name))]) {
    try {
      const namespace = readlinkSync(`/proc/${id}/ns/net`);
      if (!found.has(namespace)) found.set(namespace, id);
    } catch (error) {
      // Others have ended.
      if (error instanceof Error && "code" in error && error.code === "EACCES") hidden++;
    }
  }
  return { processes: [...found.values()], hidden };
}

/** Returns those of some endpoints that a UDP socket in the namespace of a process is connected to. */
function connectedTo(processId: string, endpoints: ReadonlySet<string>): readonly string[] {
  try {
    const peers = (["udp", "udp6"] as const).flatMap((table) =>
      parseConnectedPeers(readFileSync(`/proc/${processId}/net/${table}`, "latin1")),
    );
    return [...new Set(peers)].filter((peer) => endpoints.has(peer));
  } catch {
    return [];
  }
}
