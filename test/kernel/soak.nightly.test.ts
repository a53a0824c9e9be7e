import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { serviceManifests } from "@kpng/backend-iptables/testing/manifests.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { describePackets, describeVariants } from "./describe-packets.ts";
import { type SoakSubject, soakIptables, soakNft } from "./soak-subjects.ts";

// Our backends while another program edits the tables of their node at random. `npm run soak` runs it for ten minutes.
/** Duration of the edits of each test. */
const seconds = Number(process.env.SOAK_SECONDS ?? 12);
const seed = Number(process.env.SOAK_SEED ?? Date.now() % 1_000_000);

const cli = programFile("cli");

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

const place = "a node whose tables another program edits at random";
describeVariants(place, undefined, (variant) => testSoak(`iptables-${variant}`, (lab) => soakIptables(lab, variant)));
describePackets(`${place}, kpng-nft`, () => testSoak("kpng-nft", soakNft));

function testSoak(name: string, subjectIn: (laboratory: Laboratory) => SoakSubject): void {
  test("ends with the rules of its view, and with the rules of the other program", {
    timeout: (seconds + 240) * 1_000,
  }, async () => {
    process.stdout.write(`${name}: SOAK_SEED=${seed}\n`);
    const random = makeRandom(seed);
    const choices = { below: makeRandomBelow(random), pick: makePick(random) };
    const { below } = choices;
    await using lab = await openLaboratory();
    const { laboratory } = lab;
    const subject = subjectIn(laboratory);
    for (const namespace of ["node", "clean"]) await laboratory.add(namespace);
    const path = join(laboratory.folder, "state.json");
    const save = async (step: number): Promise<void> => {
      await writeFile(`${path}.new`, manifests(step));
      await rename(`${path}.new`, path);
    };
    const command = [
      ...[process.execPath, cli, "file", "-i", path, "to-local", ...subject.sink, "--node-name", "n1"],
      ...["--state-dir", "none"],
    ];
    const shell = (text: string) => laboratory.tryRun("node", ["sh", "-c", text]);

    let step = 0;
    await save(step);
    const program = laboratory.start("node", [...command, "--error-delay", "100ms"]);
    let said = "";
    program.stderr?.on("data", (text) => {
      said = (said + text).slice(-20_000);
    });
    await expect.poll(async () => (await subject.ownRules("node")).length, { timeout: 60_000 }).toBeGreaterThan(20);

    await laboratory.run("node", ["sh", "-c", subject.prepare]);
    const edits = subject.edits("node", choices);
    let editCount = 0;
    const endMs = performance.now() + seconds * 1_000;
    while (performance.now() < endMs) {
      if (below(3) === 0) await save(++step);
      const edit = edits[below(edits.length)];
      if (edit !== undefined) await shell(await edit());
      editCount += 1;
      await new Promise((resolve) => setTimeout(resolve, below(300)));
    }
    await shell(subject.finish);

    await laboratory.run("clean", [...command, "--once"]);
    const expected = await subject.ownRules("clean");
    await expect
      .poll(() => subject.ownRules("node"), { timeout: 90_000, interval: 500 })
      .toEqual(expected)
      .catch((error: unknown) => {
        throw new Error(`SOAK_SEED=${seed}; kpng said: ${said}`, { cause: error });
      });
    expect(await subject.othersRules("node")).toBe("kept");
    expect(program.exitCode).toBe(null);
    process.stdout.write(`${name}: ${editCount} edits, ${step} changes of the view\n`);
  });
}

async function openLaboratory(): Promise<{ readonly laboratory: Laboratory } & AsyncDisposable> {
  const laboratory = await Laboratory.open();
  return { laboratory, [Symbol.asyncDispose]: () => laboratory.close() };
}
