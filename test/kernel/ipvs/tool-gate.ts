import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { NodeUnderTest } from "./node-under-test.ts";

/** Tools that write to the kernel, and a pattern for the arguments with which they do. */
const tools = { ipvsadm: "*-R*", ipset: "*restore*", ip: "*-batch*" } as const;

/**
 * Holds the tools of the node under test before they write, so that a check can look at the moment between two of them.
 */
export class ToolGate {
  readonly #node: NodeUnderTest;
  readonly #folder = mkdtempSync(join(tmpdir(), "kpng-gate-"));

  constructor(node: NodeUnderTest) {
    this.#node = node;
  }

  /** From now on, each run of a tool that writes waits. */
  async close(): Promise<void> {
    for (const [name, pattern] of Object.entries(tools)) {
      const file = join(this.#folder, name);
      const waiting = `${this.#folder}/${name}.waits.$$`;
      const lines = [
        "#!/bin/sh",
        `case "$*" in ${pattern}) touch "${waiting}"; while [ -e "${waiting}" ]; do sleep 0.02; done ;; esac`,
        // The next one of this name on the PATH.
        `PATH="\${PATH#${this.#folder}:}" exec ${name} "$@"`,
      ];
      writeFileSync(file, `${lines.join("\n")}\n`);
      chmodSync(file, 0o755);
    }
    await this.#node.ask({ kind: "tools", folder: this.#folder });
  }

  /** Tools run as usual again. */
  async open(): Promise<void> {
    await this.#node.ask({ kind: "tools", folder: undefined });
    for (const name of Object.keys(tools)) rmSync(join(this.#folder, name), { force: true });
  }

  /** Calls `look` for each run that waits, and then lets it go on, until `work` is done. */
  async during(work: Promise<unknown>, look: (tool: string) => Promise<void>): Promise<void> {
    let isDone = false;
    const end = work.finally(() => {
      isDone = true;
    });
    end.catch(() => undefined);
    while (!isDone) {
      for (const file of readdirSync(this.#folder).filter((one) => one.includes(".waits."))) {
        await look(file.split(".")[0] ?? "");
        const path = join(this.#folder, file);
        if (existsSync(path)) rmSync(path);
      }
      await sleep(10);
    }
    await end;
  }
}
