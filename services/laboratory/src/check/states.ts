import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Laboratory, waitForSocket } from "../laboratory.ts";
import { NodeProcess } from "../node-process.ts";
import { nodes, type State } from "../scenario/build.ts";

/** Where a proxy under test reads the state of the cluster. */
export interface StateSource {
  /** Values of the placeholders of this source in the command of a proxy. *Shape:* `{ api: "unix:///tmp/x.sock" }`. */
  readonly words: Readonly<Record<string, string>>;
  /** A proxy sees all changes of a state at once, or none of them. */
  readonly isAtomic: boolean;
  apply(state: State): Promise<void>;
  /** Restarts what serves the states; undefined if that is not possible. */
  readonly restart: (() => Promise<void>) | undefined;
  /** Returns the end of what it logs. */
  log(): string;
  close(): Promise<void>;
}

/** States that kpng's watcher reads from a file, and serves on a unix socket. */
export class WatcherStates implements StateSource {
  readonly words: Readonly<Record<string, string>>;
  readonly isAtomic = true;
  readonly #watcher: NodeProcess;
  readonly #command: readonly string[];
  readonly #folder: string;
  readonly #socket: string;

  private constructor(laboratory: Laboratory, { kpng, name = "kpng", args = [] }: WatcherOptions) {
    this.#watcher = new NodeProcess(laboratory, "lan");
    this.#folder = join(laboratory.folder, `${name}-manifests`);
    this.#socket = join(laboratory.folder, `${name}.sock`);
    this.words = { api: `unix://${this.#socket}` };
    const to = ["to-api", "--listen", `unix://${this.#socket}`, "--log-level", "error"];
    this.#command = [...kpng, "file", "-i", this.#folder, ...to, ...args];
  }

  /** Starts the watcher, without Services. */
  static async start(laboratory: Laboratory, options: WatcherOptions): Promise<WatcherStates> {
    const states = new WatcherStates(laboratory, options);
    await mkdir(states.#folder);
    await states.apply({ services: [], slices: [] });
    await states.#start();
    return states;
  }

  async #start(): Promise<void> {
    await waitForSocket(this.#watcher.start(this.#command), this.#socket).catch((error: unknown) => {
      throw new Error(`the watcher does not start: ${error}\n${this.log()}`);
    });
  }

  /** Replaces the state file in one step: the watcher reads the whole new state or the whole old one. */
  async apply(state: State): Promise<void> {
    const items = [...nodes, ...state.services, ...state.slices];
    const path = `${this.#folder}-next.json`;
    await writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(path, join(this.#folder, "state.json"));
  }

  readonly restart = async (): Promise<void> => {
    await this.close();
    await this.#start();
  };

  log(): string {
    return this.#watcher.log(10);
  }

  close(): Promise<void> {
    return this.#watcher.stop();
  }
}

interface WatcherOptions {
  /** Command that runs kpng. */
  readonly kpng: readonly string[];
  /** Name of its files. Default "kpng". */
  readonly name?: string | undefined;
  /** Additional options of `to-api`. */
  readonly args?: readonly string[] | undefined;
}
