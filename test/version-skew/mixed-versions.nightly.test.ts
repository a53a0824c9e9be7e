import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { usePrograms } from "../process/programs.ts";
import { serviceList } from "../process/service-list.ts";

const repository = resolve(import.meta.dirname, "../..");

/** Commit that stands for the previous version as long as there is no tag. */
const commitBeforeTags = "4d97fa1";

/**
 * Returns the commit of the previous version: that in KPNG_PREVIOUS, otherwise the newest tag before this commit,
 * otherwise {@link commitBeforeTags}; undefined in a shallow clone, which has none of these.
 */
function findPreviousVersion(): string | undefined {
  const wanted = process.env.KPNG_PREVIOUS ?? git(["describe", "--tags", "--abbrev=0", "HEAD^"]) ?? commitBeforeTags;
  return git(["rev-parse", "--verify", "--quiet", `${wanted}^{commit}`]);
}

/**
 * Writes the sources of a commit to a folder, in which they run, and can be bundled, with the installed packages of
 * this one: dependencies of the two versions must be compatible.
 */
function checkOut(commit: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const archive = execFileSync("git", ["archive", commit], { cwd: repository, maxBuffer: 1 << 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  const [packages, own] = [join(repository, "node_modules"), join(folder, "node_modules/@kpng")];
  mkdirSync(own, { recursive: true });
  for (const name of readdirSync(packages)) {
    if (name !== "@kpng") symlinkSync(join(packages, name), join(folder, "node_modules", name));
  }
  for (const name of readdirSync(join(folder, "services")))
    symlinkSync(join(folder, "services", name), join(own, name));
}

/** Returns the output of git; undefined if it fails. */
function git(args: readonly string[]): string | undefined {
  try {
    return execFileSync("git", args, { cwd: repository, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return undefined;
  }
}

// Two versions of the project at the same time: watchers and backends of both, while the cluster changes and the
// programs are killed, frozen and replaced by the other version. test/e2e/soak does the same with kernel rules.

const seed = Number(process.env.SKEW_SEED ?? Date.now() % 1_000_000);
const changes = 60;

const previous = findPreviousVersion();
const name = "watchers and backends of two versions lose no change while they are killed, frozen and replaced";

/** Services at a step. The first and the last of the alphabet stay as they are. */
function manifests(step: number): string {
  const changing = Array.from({ length: 20 }, (_, index) => index)
    .filter((index) => (step + index) % 5 !== 0)
    .map((index) => ({
      name: `changing-${index}`,
      clusterIP: `10.96.1.${index}`,
      endpoint: `10.0.1.${1 + ((step * 7 + index) % 200)}`,
    }));
  const steady = ["a-steady", "z-steady"].map((name, index) => ({
    name,
    clusterIP: `10.96.0.${index + 1}`,
    endpoint: `10.0.0.${index + 1}`,
  }));
  return JSON.stringify(serviceList(...steady, ...changing));
}

const programs = usePrograms();

test(name, { timeout: 300_000 }, async ({ skip }) => {
  if (previous === undefined) return skip("this clone has no earlier version (a shallow clone?)");
  process.stdout.write(`version skew with ${previous.slice(0, 10)}: SKEW_SEED=${seed}\n`);
  const random = makeRandom(seed);
  const [below, pick] = [makeRandomBelow(random), makePick(random)];
  const roots = { previous: programs.at("previous"), current: resolve(".") };
  checkOut(previous, roots.previous);
  type Version = keyof typeof roots;
  const save = (step: number): void => {
    writeFileSync(programs.at("state.new"), manifests(step));
    renameSync(programs.at("state.new"), programs.at("state.json"));
  };
  save(0);

  const sockets = ["a", "b"] as const;
  const api = sockets.map((socket) => `unix://${programs.at(`${socket}.sock`)}`).join(",");
  const watcher = (socket: string, version: Version): Program =>
    programs.start(join(roots[version], "services/cli/src/main.ts"), [
      ...["file", "-i", programs.at("state.json"), "to-api", "--listen", `unix://${programs.at(`${socket}.sock`)}`],
      ...["--drain-time", "0"],
    ]);
  const backend = (version: Version, args: readonly string[] = []): Program =>
    programs.start(join(roots[version], "services/backend-json/src/main.ts"), [
      ...["--api", api, "--node-name", "n1", ...args],
    ]);
  const running = { a: watcher("a", "current"), b: watcher("b", "previous") };
  const backends = [backend("previous"), backend("current")];
  for (const { stdout } of backends) await expect.poll(stdout, { timeout: 60_000 }).toContain("z-steady");

  const frozen = new Set<Program>();
  for (let step = 1; step <= changes; step++) {
    save(step);
    // A change reaches the programs while they are being replaced, or before.
    await sleep(below(100));
    if (below(4) !== 0) continue;
    const socket = pick(...sockets);
    const program = running[socket];
    if (below(3) === 0 && frozen.size === 0) {
      program.signal("SIGSTOP");
      frozen.add(program);
      continue;
    }
    for (const one of frozen) one.signal("SIGCONT");
    frozen.clear();
    program.signal(pick("SIGKILL", "SIGTERM"));
    await program.ended;
    running[socket] = watcher(socket, pick("previous", "current"));
  }
  for (const one of frozen) one.signal("SIGCONT");

  const lastStep = `10.0.1.${1 + ((changes * 7 + 1) % 200)}`;
  for (const [index, version] of (["previous", "current"] as const).entries()) {
    const running = backends[index];
    await expect.poll(() => lastViewOf(running?.stdout() ?? ""), { timeout: 120_000 }).toContain(lastStep);
    const asked = backend(version, ["--once"]);
    await asked.ended;
    // Both watchers have the last state when a new client gets it.
    await expect.poll(() => lastViewOf(running?.stdout() ?? ""), { timeout: 60_000 }).toBe(asked.stdout());
    const steady = (running?.stdout() ?? "").split("\n").filter((line) => line.includes("-steady"));
    expect(new Set(steady).size, "a Service that did not change was printed in different ways").toBe(2);
    expect(running?.stderr()).not.toContain('"level":"fatal"');
  }
});

/** Returns the last view in the output of a backend that prints all Services in the order of their names. */
function lastViewOf(text: string): string {
  const lines = text.split("\n");
  const start = lines.findLastIndex((line) => line.includes("a-steady"));
  return lines.slice(start).join("\n");
}
