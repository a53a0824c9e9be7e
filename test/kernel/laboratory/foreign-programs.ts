import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { ForeignPlace, ForeignProgram, ForeignRequest, SocketHookName } from "./attach-foreign.ts";
import { mountBpf } from "./bpf.ts";

const program = fileURLToPath(new URL("attach-foreign.ts", import.meta.url));

/**
 * BPF programs of another project on one node of a laboratory, at the hooks that kpng-ebpf uses. They are pinned, so
 * they disappear with the laboratory; those of a cgroup also disappear with it.
 */
export class ForeignPrograms {
  readonly #laboratory: Laboratory;
  readonly #node: string;
  readonly #folder: string;
  #count = 0;

  private constructor(laboratory: Laboratory, node: string, folder: string) {
    this.#laboratory = laboratory;
    this.#node = node;
    this.#folder = folder;
  }

  static async open(laboratory: Laboratory, node: string): Promise<ForeignPrograms> {
    const folder = join(await mountBpf(laboratory, node), "foreign");
    await laboratory.run(node, ["mkdir", "-p", folder]);
    return new ForeignPrograms(laboratory, node, folder);
  }

  /** Attaches a program, and returns the path of its link, or of the program where there is no link. */
  async attach(foreign: ForeignProgram, place: ForeignPlace): Promise<string> {
    const pin = join(this.#folder, `${foreign.does}-${this.#count++}`);
    await this.#run({ kind: "attach", program: foreign, place, pin });
    return pin;
  }

  /** Removes links, which detaches their programs. */
  async remove(pins: readonly string[]): Promise<void> {
    await this.#laboratory.run(this.#node, ["rm", ...pins]);
  }

  /** Detaches a program that was attached to a cgroup without a link. */
  async detach(pin: string, hook: SocketHookName, cgroup: string): Promise<void> {
    await this.#run({ kind: "detach", hook, cgroup, pin });
  }

  /** Returns the names of the programs at a hook of a cgroup, in the order in which they run. */
  async atCgroup(cgroup: string, hook: SocketHookName): Promise<readonly string[]> {
    return JSON.parse(await this.#run({ kind: "list", hook, cgroup }));
  }

  /** Returns how many sockets a program that counts has seen go to its address, and how many elsewhere. */
  async counts(pin: string): Promise<readonly [to: number, elsewhere: number]> {
    return JSON.parse(await this.#run({ kind: "counts", pin }));
  }

  #run(request: ForeignRequest): Promise<string> {
    return this.#laboratory.run(this.#node, [process.execPath, program, JSON.stringify(request)]);
  }
}
