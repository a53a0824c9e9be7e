import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { until } from "../../cluster/until.ts";
import { runInGuest } from "../../guest/guest.ts";
import { type Addresses, addGuestTap, controlPlaneName, guestTap } from "./network.ts";
import type { ClusterNode, NodeOptions } from "./node.ts";

/** Options of the nodes in a guest, as JSON in the file `nodes.json` of the folder that it shares with the machine. */
export type GuestCluster = Omit<NodeOptions, "laboratory" | "node">;

/** A call of a method of a node in the guest, as JSON in a file of its own. */
export interface GuestCall {
  readonly node: string;
  readonly method: "start" | "kill" | "run" | "tail";
  readonly command?: readonly string[] | undefined;
}

/** Result of a call, or the message of its error. */
export type GuestAnswer = { readonly result?: unknown } | { readonly error: string };

/** Longest duration of a guest. */
const guestMs = 3 * 3_600_000;

/** Memory of a guest: images and what the containers write. */
const memoryMiB = 8_192;

/** Limit for its boot and the copy of the images. */
const startLimitMs = 300_000;

/** Limit for its end, and for an answer: longer than any command of a test. */
const [stopLimitMs, callLimitMs] = [60_000, 600_000];

/**
 * Folder in the guest for what the nodes write, below an empty folder that each machine has. Nodes hide /run and /tmp
 * (node.sh).
 */
const guestFolder = "/mnt/cluster";

/**
 * The nodes of a cluster in a guest with another kernel. The control plane and the tests stay on this machine: the
 * bridge of the cluster reaches into the guest through a TAP device. Calls of nodes are files in the folder that guest
 * and machine share.
 */
export class GuestNodes {
  readonly nodes: readonly ClusterNode[];
  readonly #folder: string;
  readonly #exit: Promise<string>;
  #lastCall = 0;
  /** Why the guest has ended, or undefined. */
  #ended: string | undefined;

  private constructor(folder: string, nodes: Addresses["nodes"], exit: Promise<string>) {
    this.#folder = folder;
    this.#exit = exit;
    void exit.then((reason) => {
      this.#ended = reason;
    });
    this.nodes = nodes.map(({ name }) => {
      const call = async (method: GuestCall["method"], command?: readonly string[]): Promise<string> =>
        String(await this.#call({ node: name, method, command }));
      return {
        name,
        folder: join(guestFolder, name),
        start: async () => void (await call("start")),
        kill: async () => void (await call("kill")),
        run: (command) => call("run", command),
        tail: () => call("tail"),
      };
    });
  }

  /**
   * Boots a guest with the nodes of a cluster, which do not run yet. `folder` is shared with it, and has the store of
   * images in `images`.
   *
   * Errors: no guest boots, or it ends, with its output.
   */
  static async start(options: {
    readonly laboratory: Laboratory;
    readonly addresses: Addresses;
    readonly folder: string;
    readonly kubeletPath: string;
    readonly kubeconfig: string;
  }): Promise<GuestNodes> {
    const { laboratory, addresses, folder, kubeletPath, kubeconfig } = options;
    for (const name of ["calls", "answers"]) mkdirSync(join(folder, name));
    const cluster: GuestCluster = {
      ...{ addresses, kubeletPath, kubeconfig, folder: guestFolder },
      imageStore: join(guestFolder, "images"),
    };
    writeFileSync(join(folder, "nodes.json"), JSON.stringify(cluster));
    await addGuestTap(laboratory);
    const script = (name: string): string => join(import.meta.dirname, name);
    const end = runInGuest({
      folder,
      command: [script("guest.sh"), folder, guestFolder, process.execPath, script("guest-main.ts"), folder],
      memoryMiB,
      timeoutMs: guestMs,
      network: {
        tap: guestTap,
        start: (command, environment) => laboratory.start(controlPlaneName, command, environment),
      },
    });
    const exit = end.then(
      (how) =>
        how.kind === "not-booted" ? how.reason : `the guest has ended (${how.kind}):\n${how.output.slice(-4_000)}`,
      String,
    );
    const hasEnded = exit.then((reason) => {
      throw new Error(reason);
    });
    const isReady = until("the guest has started", () => existsSync(join(folder, "ready")), startLimitMs);
    await Promise.race([isReady, hasEnded]);
    return new GuestNodes(folder, addresses.nodes, exit);
  }

  /**
   * Ends the guest; its nodes leave their logs in the shared folder. A guest that does not answer is left to
   * `Laboratory`.
   */
  async stop(): Promise<void> {
    writeFileSync(join(this.#folder, "stop"), "");
    await Promise.race([this.#exit, sleep(stopLimitMs, undefined, { ref: false })]);
  }

  async #call(call: GuestCall): Promise<unknown> {
    const name = `${++this.#lastCall}.json`;
    const [unfinished, file] = [join(this.#folder, name), join(this.#folder, "calls", name)];
    writeFileSync(unfinished, JSON.stringify(call));
    renameSync(unfinished, file);
    const answerFile = join(this.#folder, "answers", name);
    const deadlineMs = performance.now() + callLimitMs;
    while (!existsSync(answerFile)) {
      if (this.#ended !== undefined) throw new Error(this.#ended);
      if (performance.now() > deadlineMs) throw new Error(`the guest does not answer: ${JSON.stringify(call)}`);
      await sleep(20);
    }
    const answer = JSON.parse(readFileSync(answerFile, "utf8")) as GuestAnswer;
    rmSync(answerFile);
    if ("error" in answer) throw new Error(answer.error);
    return answer.result;
  }
}
