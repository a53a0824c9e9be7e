import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { controlPlaneName } from "./network.ts";

/** kubectl with the rights of an administrator, on the host of the control plane. */
export class Kubectl {
  readonly path: string;
  readonly kubeconfig: string;
  readonly #laboratory: Laboratory;

  constructor(laboratory: Laboratory, path: string, kubeconfig: string) {
    this.#laboratory = laboratory;
    this.path = path;
    this.kubeconfig = kubeconfig;
  }

  /** Returns the standard output. Errors: exit status other than 0, or no end after a minute, with stderr. */
  run(args: readonly string[], input?: string): Promise<string> {
    const command = [this.path, "--kubeconfig", this.kubeconfig, ...args];
    return this.#laboratory.run(controlPlaneName, command, input);
  }

  /**
   * Runs a command of a document in a shell, and returns what it prints. Errors: an exit status other than 0, or no end
   * after 3 minutes.
   */
  async runInShell(command: string): Promise<string> {
    const script = `KUBECONFIG='${this.kubeconfig}'; export KUBECONFIG; kubectl() { '${this.path}' "$@"; }; ${command}`;
    const shell = ["bash", "-ec", script];
    const { exitCode, stdout, stderr } = await this.#laboratory.tryRun(controlPlaneName, shell, "", 180_000);
    if (exitCode !== 0) throw new Error(`${command}: exit status ${exitCode}: ${stdout}${stderr.trim()}`);
    return `${stdout}${stderr}`;
  }

  async apply(objects: readonly object[]): Promise<void> {
    const list = { apiVersion: "v1", kind: "List", items: objects };
    await this.run(["apply", "--filename", "-"], JSON.stringify(list));
  }
}
