import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { serviceManifests } from "@kpng/backend-iptables/testing/manifests.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { describeVariants } from "./describe-variants.ts";

// kpng-iptables while another program edits the tables of its node at random. `npm run soak` runs it for ten minutes,
// half of them with each variant of iptables.
const seconds = Number(process.env.SOAK_SECONDS ?? 30) / 2;
const seed = Number(process.env.SOAK_SEED ?? Date.now() % 1_000_000);

const cli = fileURLToPath(new URL("../../services/cli/src/main.ts", import.meta.url));

/** Services of the node at a step of the churn: each step adds, removes or moves some. */
function manifests(step: number): string {
  const items = Array.from({ length: 12 }, (_, index) => index)
    .filter((index) => (step + index) % 5 !== 0)
    .flatMap((index) =>
      serviceManifests({
        name: `s${index}`,
        clusterIP: `10.96.${index}.10`,
        endpoint: `10.0.1.${1 + ((step + index) % 200)}`,
        ...(index % 3 === 0 ? { nodePort: 30_000 + index } : {}),
      }),
    );
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

describeVariants("a node whose tables another program edits at random", undefined, (variant) => {
  test("ends with the rules of its view, and with the rules of the other program", {
    timeout: (seconds + 240) * 1_000,
  }, async () => {
    process.stdout.write(`iptables-${variant}: SOAK_SEED=${seed}\n`);
    const random = makeRandom(seed);
    const [below, pick] = [makeRandomBelow(random), makePick(random)];
    await using lab = await openLaboratory();
    const { laboratory } = lab;
    for (const name of ["node", "clean"]) await laboratory.add(name);
    const path = join(laboratory.folder, "state.json");
    const save = async (step: number): Promise<void> => {
      await writeFile(`${path}.new`, manifests(step));
      await rename(`${path}.new`, path);
    };
    const command = [
      ...[process.execPath, cli, "file", "-i", path, "to-local", "to-iptables", "--node-name", "n1"],
      ...["--state-dir", "none", "--iptables-variant", variant],
    ];
    const savedIn = async (name: string): Promise<readonly string[]> =>
      (await laboratory.run(name, [`iptables-${variant}-save`])).split("\n");
    const shell = (text: string) => laboratory.tryRun("node", ["sh", "-c", text]);
    const tool = `iptables-${variant} -w 5`;

    let step = 0;
    await save(step);
    const program = laboratory.start("node", [...command, "--drift-interval", "1s", "--error-delay", "100ms"]);
    let said = "";
    program.stderr?.on("data", (text) => {
      said = (said + text).slice(-20_000);
    });
    await expect.poll(async () => ourRules(await savedIn("node")).length, { timeout: 60_000 }).toBeGreaterThan(20);

    await shell(`${tool} -A FORWARD -s 192.0.2.1 -m comment --comment theirs -j DROP; ${tool} -t nat -N THEIRS`);
    const ownChain = async (): Promise<string> => {
      const chains = (await savedIn("node")).flatMap((line) => line.match(/^:(KPNG-\S+)/)?.[1] ?? []);
      return chains[below(chains.length)] ?? "KPNG-SERVICES";
    };
    const edits: readonly (() => Promise<string>)[] = [
      async () => `${tool} -t nat -F ${await ownChain()}`,
      async () => `${tool} -t ${pick("nat", "filter")} -I ${await ownChain()} -j RETURN`,
      async () => `${tool} -t nat -D ${pick("PREROUTING", "OUTPUT", "POSTROUTING")} 1`,
      async () => `${tool} -D ${pick("INPUT", "OUTPUT")} 1`,
      async () => `${tool} -t nat -N KPNG-SVC-${"A".repeat(16)}; ${tool} -t nat -A INPUT -j KPNG-SVC-${"A".repeat(16)}`,
      async () => `${tool} -t nat -A THEIRS -j ${await ownChain()}`,
      async () => `${tool} -t nat -F THEIRS`,
      async () => `${tool} -t nat -F PREROUTING; ${tool} -t nat -X`,
      async () => `iptables-${variant}-save -t nat | grep -v ${await ownChain()} | iptables-${variant}-restore`,
      ...(variant === "nft" ? [async () => addNative, async () => deleteNative] : []),
    ];
    let editCount = 0;
    const endMs = performance.now() + seconds * 1_000;
    while (performance.now() < endMs) {
      if (below(3) === 0) await save(++step);
      const edit = edits[below(edits.length)];
      if (edit !== undefined) await shell(await edit());
      editCount += 1;
      await new Promise((resolve) => setTimeout(resolve, below(300)));
    }
    await shell(`${tool} -t nat -N THEIRS; ${tool} -t nat -F THEIRS; ${variant === "nft" ? deleteNative : "true"}`);

    await laboratory.run("clean", [...command, "--once"]);
    const expected = ourRules(await savedIn("clean"));
    await expect
      .poll(async () => ourRules(await savedIn("node")), { timeout: 90_000, interval: 500 })
      .toEqual(expected)
      .catch((error: unknown) => {
        throw new Error(`SOAK_SEED=${seed}; kpng said: ${said}`, { cause: error });
      });
    const saved = (await savedIn("node")).join("\n");
    expect(saved).toContain("-A FORWARD -s 192.0.2.1/32 -m comment --comment theirs -j DROP");
    expect(program.exitCode).toBe(null);
    process.stdout.write(`iptables-${variant}: ${editCount} edits, ${step} changes of the view\n`);
  });
});

const addNative = `nft add rule ip nat POSTROUTING oifname "eth9" masquerade`;
const deleteNative =
  "nft -a list chain ip nat POSTROUTING | sed -n 's/.*eth9.* handle //p' | xargs -r -I % nft delete rule ip nat POSTROUTING handle %";

/**
 * Our chains, their rules and the jumps to them, each with its table, without the record of the view. Rules of a chain
 * stay in their order; tables and chains are sorted, because iptables-legacy prints tables as the kernel loaded them.
 */
function ourRules(saved: readonly string[]): readonly string[] {
  let table = "";
  const ours: { readonly chain: string; readonly line: string }[] = [];
  for (const line of saved) {
    if (line.startsWith("*")) table = line.slice(1);
    const name = /^(?::|-A )(\S+)/.exec(line)?.[1];
    if (name === undefined || !/^:KPNG-|^-A .*KPNG-/.test(line) || line.includes("KPNG-RECORD")) continue;
    ours.push({ chain: `${table} ${name}`, line: `${table} ${line.replace(/ \[\d+:\d+\]$/, "")}` });
  }
  return ours.sort((a, b) => compareText(a.chain, b.chain)).map(({ line }) => line);
}

async function openLaboratory(): Promise<{ readonly laboratory: Laboratory } & AsyncDisposable> {
  const laboratory = await Laboratory.open();
  return { laboratory, [Symbol.asyncDispose]: () => laboratory.close() };
}
