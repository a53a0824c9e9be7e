import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describePackets } from "./describe-packets.ts";

const main = fileURLToPath(new URL("../../services/cli/src/main.ts", import.meta.url));

describePackets("the demo", () => {
  // A temporary folder per run, whose name is in the environment of every process of the run.
  let temporary: string;
  beforeEach(async () => {
    temporary = await mkdtemp(join(tmpdir(), "kpng-demo-test-"));
  });
  afterEach(async () => rm(temporary, { recursive: true, force: true }));

  /**
   * Runs the demo. When its output contains `moment`, sends it the signal twice, as `npm run` does. `command` runs the
   * command line that follows it.
   */
  async function run(moment?: string, signal: NodeJS.Signals = "SIGINT", command: readonly string[] = []) {
    const [program = "", ...args] = [...command, process.execPath, main, "demo"];
    const child = spawn(program, args, { env: { ...process.env, TMPDIR: temporary } });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        const isBefore = moment !== undefined && !output.includes(moment);
        output += text;
        if (isBefore && output.includes(moment)) {
          child.kill(signal);
          child.kill(signal);
        }
      });
    }
    const [exitCode] = await once(child, "close");
    return { exitCode, output };
  }

  /** Returns the command lines of all live processes with this run's temporary folder. */
  async function leftProcesses(): Promise<readonly string[]> {
    const numbers = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
    const read = (number: string, file: string) => readFile(`/proc/${number}/${file}`, "utf8").catch(() => "");
    const lines = numbers.map(async (number) =>
      (await read(number, "environ")).includes(temporary)
        ? [(await read(number, "cmdline")).replaceAll("\0", " ")]
        : [],
    );
    return (await Promise.all(lines)).flat();
  }

  /**
   * Checks that no process is left. A network namespace exists only while a process or a mount uses it, and mounts end
   * with their processes.
   */
  async function expectNothingLeft(): Promise<void> {
    // A process that was just being started finds its namespace gone, and ends a moment later.
    await expect.poll(leftProcesses, { timeout: 5_000 }).toEqual([]);
    expect(await readdir(temporary)).toEqual([]);
  }

  test("the demo sends packets that both pods answer over both families, shows the changes, and leaves nothing", async () => {
    const { exitCode, output } = await run();
    expect(exitCode, output).toBe(0);
    for (const address of ["198.51.100.10", "2001:db8:100::10"]) {
      expect(output).toMatch(new RegExp(`${address}  TCP port 80: pod-a answers \\d+, pod-b answers \\d+`));
      expect(output).toMatch(new RegExp(`${address}  UDP port 53: pod-a answers \\d+, pod-b answers \\d+`));
      expect(output).toMatch(new RegExp(`${address}: first packet to pod-a \\d+ ms after the file changed`));
    }
    for (const address of ["198.51.100.20", "2001:db8:100::20"]) {
      expect(output).toMatch(new RegExp(`${address}: first packet answered \\d+ ms after the file changed`));
    }
    expect(output).toMatch(/ rules +the rules[\s\S]*10\.1\.1\.11/);
    await expectNothingLeft();
  });

  /** Returns a command that runs another one where this tool is missing. */
  function without(tool: string): readonly string[] {
    const script = `PATH=$PATH:/usr/sbin:/sbin; mount --bind /dev/null "$(command -v ${tool})"; exec "$@"`;
    return ["unshare", "--map-root-user", "--mount", "sh", "-ec", script, "sh"];
  }

  test("the demo needs no iptables", async () => {
    // All of its commands are one program.
    const { exitCode, output } = await run(undefined, undefined, without("iptables-restore"));
    expect(exitCode, output).toBe(0);
  });

  test("without nft, the demo says what is missing, and explains a packet", async () => {
    const { exitCode, output } = await run(undefined, undefined, without("nft"));
    expect(output).toContain("Cannot send packets here: not installed: nft (Debian packages: nftables)");
    expect(output).toMatch(/^outside → 198\.51\.100\.10:80\/TCP: FORWARD$/m);
    expect(exitCode).toBe(1);
    await expectNothingLeft();
  });

  test.each([
    ["SIGINT", "network"],
    ["SIGTERM", "packets"],
    ["SIGINT", "change"],
  ] as const)("the demo leaves nothing after %s at %s", async (signal, moment) => {
    const { exitCode, output } = await run(`  ${moment}`, signal);
    expect(exitCode, output).toBe(130);
    await expectNothingLeft();
  });
});
