import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { BackendEbpfError } from "../bpf/ebpf-error.ts";

const timeoutMs = 60_000;

/**
 * The table of nftables that programs rely on. It does not depend on Services. Its rules with `ct` make the kernel
 * track connections, its chains of type nat let netfilter translate the flows that programs decide, and one rule
 * answers packets that programs marked.
 *
 * `Datapath` installs and checks it, and `removeDatapath` removes it. Separate, because it alone runs `nft`.
 */
export class PacketFrame {
  readonly #table: string;
  readonly #text: string;
  /** The table as nft lists it after it was written; nft may write a rule in another form than we do. */
  #listed: string;

  /** `refuseBit` is the bit of the packet mark by which a program requests a refusal. */
  constructor(table: string, refuseBit: number) {
    this.#table = table;
    this.#text = formatTable(table, refuseBit);
    this.#listed = this.#text;
  }

  /** Returns true if the table is installed as it should be. Errors: FRAME_FAILED. */
  async isInstalled(): Promise<boolean> {
    return (await this.#list()) === this.#listed;
  }

  /** Writes the table in one transaction. Errors: FRAME_FAILED. */
  async install(): Promise<void> {
    await run(["nft", "-f", "-"], `add table inet ${this.#table}\ndelete table inet ${this.#table}\n${this.#text}`);
    this.#listed = (await this.#list()) ?? "";
  }

  /** Deletes the table if there is one. Errors: FRAME_FAILED. */
  async remove(): Promise<void> {
    if ((await this.#list()) !== undefined) await run(["nft", "delete", "table", "inet", this.#table]);
  }

  /** Returns the table as nft lists it; undefined if it does not exist. */
  async #list(): Promise<string | undefined> {
    const tables = await run(["nft", "list", "tables", "inet"]);
    return tables.split("\n").includes(`table inet ${this.#table}`)
      ? run(["nft", "list", "table", "inet", this.#table])
      : undefined;
  }
}

function formatTable(table: string, refuseBit: number): string {
  const bit = `0x${(2 ** refuseBit).toString(16).padStart(8, "0")}`;
  const nat = (hook: string, priority: string): string =>
    chain(`nat_${hook}`, `type nat hook ${hook} priority ${priority}; policy accept;`, "ct status dnat accept");
  const chains = [
    chain("refuse", "type filter hook prerouting priority raw; policy accept;", `meta mark & ${bit} == ${bit} reject`),
    ...[nat("prerouting", "dstnat"), nat("input", "100"), nat("output", "-100"), nat("postrouting", "srcnat")],
  ];
  return `table inet ${table} {\n${chains.join("\n")}}\n`;
}

const chain = (name: string, base: string, rule: string): string =>
  `\tchain ${name} {\n\t\t${base}\n\t\t${rule}\n\t}\n`;

async function run(command: readonly string[], stdin = ""): Promise<string> {
  const end = await runProgram(command, { timeoutMs, stdin });
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  const said = end.kind === "not-started" ? "" : `: ${end.stderr.trim().slice(0, 2_000)}`;
  throw new BackendEbpfError("FRAME_FAILED", `${command.join(" ")} failed (${describeEnd(end, timeoutMs)})${said}`);
}
