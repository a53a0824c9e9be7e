import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { describePackets } from "../../../test/kernel/describe-packets.ts";
import { serviceManifests } from "./testing/manifests.ts";

// A test starts up to ten programs one after the other, each of which takes seconds on a busy machine.
vi.setConfig({ testTimeout: 180_000 });

const cli = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const main = fileURLToPath(new URL("main.ts", import.meta.url));

const state = serviceManifests({ clusterIP: "10.96.0.10", portName: "http", endpoint: "10.0.1.1" });

describePackets("kpng-iptables as a program", () => {
  let laboratory: Laboratory;
  let manifest: string;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
    manifest = join(laboratory.folder, "state.json");
    await writeFile(manifest, JSON.stringify({ apiVersion: "v1", kind: "List", items: state }));
  });
  afterAll(() => laboratory.close());

  const once = (...options: readonly string[]) =>
    laboratory.tryRun("node", [
      process.execPath,
      ...[cli, "file", "-i", manifest, "to-local", "to-iptables", "--once", "--node-name", "n1", "--state-dir", "none"],
      ...options,
    ]);
  const own = async (tool: string): Promise<readonly string[]> =>
    (await laboratory.run("node", [`${tool}-save`])).split("\n").filter((line) => line.includes("KPNG"));

  test("--dry-run prints the rules and installs none", async () => {
    const { exitCode, stdout } = await once("--dry-run");
    expect(exitCode).toBe(0);
    expect(stdout).toContain("# iptables-restore --noflush\n*filter\n");
    expect(stdout).toMatch(
      /-A KPNG-SVC-\w+ -p tcp -m comment --comment "a\/web:http" -j DNAT --to-destination 10.0.1.1:8080/,
    );
    expect(await own("iptables")).toEqual([]);
  });

  test("--once installs the rules and ends, --dry-run then prints nothing, and --cleanup removes everything", async () => {
    expect((await once()).exitCode).toBe(0);
    expect((await own("iptables")).join("\n")).toContain("--to-destination 10.0.1.1:8080");
    expect((await own("ip6tables")).length).toBeGreaterThan(0);
    expect((await once("--dry-run")).stdout).toBe("");
    const { exitCode } = await laboratory.tryRun("node", [process.execPath, main, "--cleanup"]);
    expect(exitCode).toBe(0);
    expect([...(await own("iptables")), ...(await own("ip6tables"))]).toEqual([]);
  });

  test("a tool that fails keeps --cleanup from no other rules, and its failure is the exit status", async () => {
    expect((await once()).exitCode).toBe(0);
    const folder = join(laboratory.folder, "tools");
    await mkdir(folder);
    await writeFile(join(folder, "iptables-restore"), "#!/bin/sh\necho 'no such luck' >&2; exit 1\n", { mode: 0o755 });
    const cleanUp = [process.execPath, main, "--cleanup"];
    const failing = await laboratory.tryRun("node", ["env", `PATH=${folder}:${process.env.PATH}`, ...cleanUp]);
    expect([failing.exitCode, failing.stderr]).toEqual([1, expect.stringContaining("[RESTORE_REFUSED]")]);
    expect([(await own("iptables")).length > 0, await own("ip6tables")]).toEqual([true, []]);
    const masked = `mount -t tmpfs none /usr/sbin && exec "$@"`;
    const without = await laboratory.tryRun("node", ["unshare", "--mount", "sh", "-c", masked, "sh", ...cleanUp]);
    expect([without.exitCode, without.stderr]).toEqual([1, expect.stringContaining("[IPTABLES_MISSING]")]);
    expect((await laboratory.tryRun("node", cleanUp)).exitCode).toBe(0);
    expect(await own("iptables")).toEqual([]);
  });

  test("--diff exits with 2 if no watcher answers", async () => {
    const api = `unix://${join(laboratory.folder, "none.sock")}`;
    const limited = [main, "--diff", "--node-name", "n1", "--api", api, "--watcher-timeout", "300ms"];
    const { exitCode, stdout, stderr } = await laboratory.tryRun("node", [process.execPath, ...limited]);
    expect([exitCode, stdout]).toEqual([2, ""]);
    const said = stderr.replaceAll("\\", "");
    expect(said).toContain(`no view of node "n1" from ${api} within 300 ms (--watcher-timeout)`);
  });

  test("--diff without the permission to read rules exits with 2", async () => {
    const look = [cli, "file", "-i", manifest, "to-local", "to-iptables", "--diff", "--node-name", "n1"];
    const bound = ["setpriv", "--bounding-set", "-net_admin,-net_raw", "--inh-caps", "-net_admin,-net_raw"];
    const { exitCode, stdout, stderr } = await laboratory.tryRun("node", [...bound, process.execPath, ...look]);
    expect([exitCode, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/"reason":"\[SAVE_FAILED\] .*"msg":"kpng stops"/);
  });

  test("--diff exits with 2 if it is stopped before it has an answer, or cannot write the answer", async () => {
    const api = `unix://${join(laboratory.folder, "none.sock")}`;
    const ask = [process.execPath, main, "--diff", "--node-name", "n1", "--watcher-timeout", "0", "--api", api];
    const stop = `"$@" 2>"$0" & until grep -q "stream lost" "$0"; do sleep 0.05; done; kill $!; wait $!`;
    const stopped = await laboratory.tryRun("node", ["sh", "-c", stop, join(laboratory.folder, "said"), ...ask]);
    expect(stopped).toMatchObject({ exitCode: 2, stdout: "" });
    const look = [
      process.execPath,
      cli,
      "file",
      "-i",
      manifest,
      "to-local",
      "to-iptables",
      "--diff",
      "--node-name",
      "n1",
    ];
    const unwritten = await laboratory.tryRun("node", ["sh", "-c", `"$@" >/dev/full`, "sh", ...look]);
    expect(unwritten.exitCode).toBe(2);
    expect(unwritten.stderr).toContain("[OUTPUT_FAILED]");
  });

  test("--diff prints changes by other programs, and changes nothing", async () => {
    await laboratory.tryRun("node", [process.execPath, main, "--cleanup"]);
    const empty = await once("--diff", "--output", "json");
    expect(empty.exitCode).toBe(1);
    const kinds = JSON.parse(empty.stdout).differences.map(({ kind }: { readonly kind: string }) => kind);
    expect(new Set(kinds)).toEqual(new Set(["missing", "jumps"]));
    expect(await own("iptables")).toEqual([]);
    await once();
    expect(await once("--diff")).toMatchObject({ exitCode: 0, stdout: "no difference\n" });
    expect(await once("--diff", "-o", "yaml")).toMatchObject({ exitCode: 0, stdout: "---\ndifferences: []\n" });
    await laboratory.run("node", ["iptables", "-t", "nat", "-R", "KPNG-MARK-MASQ", "1", "-j", "RETURN"]);
    await laboratory.run("node", ["ip6tables", "-D", "FORWARD", "1"]);
    const before = [await own("iptables"), await own("ip6tables")];
    const changed = await once("--diff");
    expect(changed).toMatchObject({ exitCode: 1 });
    expect(changed.stdout).toContain(
      "v4 nat KPNG-MARK-MASQ: rules differ\n- -j RETURN\n+ -j MARK --set-xmark 0x4000/0x4000\n",
    );
    expect(changed.stdout).toMatch(/v6 filter FORWARD: jumps to our chains differ\n\+ .*-j KPNG-PROXY-FIREWALL\n/);
    expect([await own("iptables"), await own("ip6tables")]).toEqual(before);
    const api = `unix://${join(laboratory.folder, "api.sock")}`;
    const serve = [process.execPath, cli, "file", "-i", manifest, "to-api", "--listen", api];
    const watcher = laboratory.start("node", serve);
    const diff = [
      process.execPath,
      cli,
      "diff",
      "iptables",
      "--api",
      api,
      "--node-name",
      "n1",
      "--error-delay",
      "50ms",
    ];
    const { exitCode, stdout } = await laboratory.tryRun("node", diff);
    watcher.kill();
    expect({ exitCode, stdout }).toEqual({ exitCode: changed.exitCode, stdout: changed.stdout });
    await laboratory.tryRun("node", [process.execPath, main, "--cleanup"]);
  });

  test("an instance with a proxy name has chains of its own", async () => {
    expect((await once("--service-proxy-name", "edge")).exitCode).toBe(0);
    expect((await own("iptables")).every((line) => /KPNG[A-Z2-7]{3}-/.test(line))).toBe(true);
    await laboratory.tryRun("node", [process.execPath, main, "--cleanup"]);
    expect((await own("iptables")).length).toBeGreaterThan(0);
    await laboratory.tryRun("node", [process.execPath, main, "--cleanup", "--service-proxy-name", "edge"]);
    expect(await own("iptables")).toEqual([]);
  });

  test("without iptables, the program ends with IPTABLES_MISSING", async () => {
    const { exitCode, stderr } = await once("--iptables-variant", "nft");
    expect({ exitCode, stderr: stderr.includes("IPTABLES_MISSING") }).toEqual({ exitCode: 0, stderr: false });
    const masked = `mount -t tmpfs none /usr/sbin && exec "$@"`;
    const missing = await laboratory.tryRun("node", [
      ...["unshare", "--mount", "sh", "-c", masked, "sh", process.execPath, main, "--once", "--state-dir", "none"],
    ]);
    expect(missing.exitCode).toBe(1);
    expect(missing.stderr).toContain("[IPTABLES_MISSING] iptables cannot be started");
  });

  test.each([
    { options: ["--detect-local-mode", "BridgeInterface"], reason: "needs --pod-bridge-interface" },
    { options: ["--cluster-cidr", "10.0.0.0"], reason: "is not a CIDR" },
    { options: ["--iptables-masquerade-bit", "32"], reason: "whole number from 0 to 31" },
  ])("$options is rejected", async ({ options, reason }) => {
    const { exitCode, stderr } = await once(...options);
    expect(exitCode).not.toBe(0);
    expect(stderr).toContain(reason);
  });
});
