import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test, vi } from "vitest";
import { describePackets, useLaboratory } from "../../../test/kernel/describe-packets.ts";
import { serviceList } from "../../../test/process/service-list.ts";

// A test starts up to ten programs one after the other, each of which takes seconds on a busy machine.
vi.setConfig({ testTimeout: 180_000 });

const cli = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const main = fileURLToPath(new URL("main.ts", import.meta.url));

describePackets("kpng-iptables as a program", () => {
  const laboratory = useLaboratory("node");
  let manifest: string;
  beforeAll(async () => {
    manifest = join(laboratory().folder, "state.json");
    await writeFile(manifest, JSON.stringify(serviceList({ endpoint: "10.0.1.1" })));
  });

  const once = (...options: readonly string[]) =>
    laboratory().tryRun("node", [
      process.execPath,
      ...[cli, "file", "-i", manifest, "to-local", "to-iptables", "--once", "--node-name", "n1", "--state-dir", "none"],
      ...options,
    ]);
  const own = async (tool: string): Promise<readonly string[]> =>
    (await laboratory().run("node", [`${tool}-save`])).split("\n").filter((line) => line.includes("KPNG"));

  test("--dry-run prints the rules and installs none; --once installs them, and --dry-run then prints nothing", async () => {
    const { exitCode, stdout } = await once("--dry-run");
    expect(exitCode).toBe(0);
    expect(stdout).toContain("# iptables-restore --noflush\n*filter\n");
    expect(stdout).toMatch(
      /-A KPNG-SVC-\w+ -p tcp -m comment --comment "default\/web:tcp" -j DNAT --to-destination 10.0.1.1:8080/,
    );
    expect(await own("iptables")).toEqual([]);
    expect((await once()).exitCode).toBe(0);
    expect((await own("iptables")).join("\n")).toContain("--to-destination 10.0.1.1:8080");
    expect((await own("ip6tables")).length).toBeGreaterThan(0);
    expect((await once("--dry-run")).stdout).toBe("");
  });

  test("--cleanup removes everything; a tool that fails keeps it from no other rules, and is the exit status", async () => {
    expect((await own("iptables")).length).toBeGreaterThan(0);
    const folder = join(laboratory().folder, "tools");
    await mkdir(folder);
    await writeFile(join(folder, "iptables-restore"), "#!/bin/sh\necho 'no such luck' >&2; exit 1\n", { mode: 0o755 });
    const cleanUp = [process.execPath, main, "--cleanup"];
    const failing = await laboratory().tryRun("node", ["env", `PATH=${folder}:${process.env.PATH}`, ...cleanUp]);
    expect([failing.exitCode, failing.stderr]).toEqual([1, expect.stringContaining("[RESTORE_REFUSED]")]);
    expect([(await own("iptables")).length > 0, await own("ip6tables")]).toEqual([true, []]);
    const masked = `mount -t tmpfs none /usr/sbin && exec "$@"`;
    const without = await laboratory().tryRun("node", ["unshare", "--mount", "sh", "-c", masked, "sh", ...cleanUp]);
    expect([without.exitCode, without.stderr]).toEqual([
      1,
      expect.stringContaining("[IPTABLES_MISSING] iptables cannot be started"),
    ]);
    expect((await laboratory().tryRun("node", cleanUp)).exitCode).toBe(0);
    expect(await own("iptables")).toEqual([]);
  });

  test("only the default instance sets the conntrack options", async () => {
    const timeout = () => laboratory().run("node", ["cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"]);
    await once("--conntrack-udp-timeout", "77s", "--service-proxy-name", "edge");
    expect(await timeout()).not.toBe("77\n");
    await once("--conntrack-udp-timeout", "77s");
    expect(await timeout()).toBe("77\n");
    await laboratory().tryRun("node", [process.execPath, main, "--cleanup", "--service-proxy-name", "edge"]);
  });

  test("--diff exits with 2 if it may not read rules, or cannot write the answer", async () => {
    const look = [cli, "file", "-i", manifest, "to-local", "to-iptables", "--diff", "--node-name", "n1"];
    const bound = ["setpriv", "--bounding-set", "-net_admin,-net_raw", "--inh-caps", "-net_admin,-net_raw"];
    const full = ["sh", "-c", `exec "$@" >/dev/full`, "sh"];
    const [unread, unwritten] = await Promise.all(
      [bound, full].map((words) => laboratory().tryRun("node", [...words, process.execPath, ...look])),
    );
    expect([unread?.exitCode, unread?.stdout, unwritten?.exitCode]).toEqual([2, "", 2]);
    expect(unread?.stderr).toMatch(/"reason":"\[SAVE_FAILED\] .*"msg":"kpng stops"/);
    expect(unwritten?.stderr).toContain("[OUTPUT_FAILED]");
  });

  test("--diff prints changes by other programs, and changes nothing", async () => {
    expect(await once("--diff")).toMatchObject({ exitCode: 0, stdout: "no difference\n" });
    await laboratory().run("node", ["iptables", "-t", "nat", "-R", "KPNG-MARK-MASQ", "1", "-j", "RETURN"]);
    await laboratory().run("node", ["ip6tables", "-D", "FORWARD", "1"]);
    const before = [await own("iptables"), await own("ip6tables")];
    const changed = await once("--diff");
    expect(changed).toMatchObject({ exitCode: 1 });
    expect(changed.stdout).toContain(
      "v4 nat KPNG-MARK-MASQ: rules differ\n- -j RETURN\n+ -j MARK --set-xmark 0x4000/0x4000\n",
    );
    expect(changed.stdout).toMatch(/v6 filter FORWARD: jumps to our chains differ\n\+ .*-j KPNG-PROXY-FIREWALL\n/);
    expect([await own("iptables"), await own("ip6tables")]).toEqual(before);
    const asked = await once("--diff", "-o", "json");
    expect(asked.exitCode).toBe(1);
    const kinds = JSON.parse(asked.stdout).differences.map(({ kind }: { readonly kind: string }) => kind);
    expect(kinds).toEqual(["changed", "jumps"]);
  });
});
