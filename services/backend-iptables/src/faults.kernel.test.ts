import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { chmod, copyFile, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { HttpAnswer } from "@kpng/laboratory/agent/request.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { BackendInspectService } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { until } from "../../../test/cluster/until.ts";
import { describePackets } from "../../../test/kernel/describe-packets.ts";
import { serviceManifests } from "./testing/manifests.ts";

// A test starts several programs, and a saved view is used only after three seconds.
vi.setConfig({ testTimeout: 120_000 });

const cli = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const main = fileURLToPath(new URL("main.ts", import.meta.url));

const node = { apiVersion: "v1", kind: "Node", metadata: { name: "n1" }, status: { addresses: [] } };

/** Manifests of Services `a/NAME`, each with an endpoint. */
function manifests(endpoints: Readonly<Record<string, string>>): readonly unknown[] {
  return Object.entries(endpoints).flatMap(([name, endpoint], at) =>
    serviceManifests({ name, clusterIP: `10.96.${at}.10`, endpoint }),
  );
}

/** A process in the namespace of the node. */
interface Running {
  readonly child: ChildProcess;
  /** Returns the output so far. */
  said(): string;
  /** Resolves when the output matches. */
  says(pattern: RegExp): Promise<unknown>;
  stop(): Promise<void>;
}

describePackets("kpng-iptables as a program, when something fails", () => {
  let laboratory: Laboratory;
  let count = 0;
  let name: string;
  let folder: string;
  let running: Running[] = [];
  /** Sends HTTP requests in the namespace of the node; started by the first request. */
  let agent: Promise<AgentClient> | undefined;
  let savedView: Buffer | undefined;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory.close());
  beforeEach(async () => {
    name = `node${count++}`;
    await laboratory.add(name);
    folder = join(laboratory.folder, name);
    await mkdir(join(folder, "input"), { recursive: true });
  });
  afterEach(async () => {
    for (const each of running) await each.stop();
    running = [];
    agent = undefined;
  });

  function start(command: readonly string[]): Running {
    const child = laboratory.start(name, command);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    }
    const closed = once(child, "close");
    const started: Running = {
      child,
      said: () => output,
      says: (pattern) =>
        until(
          String(pattern),
          () => pattern.test(output),
          20_000,
          () => output.slice(-3_000),
        ),
      stop: async () => {
        child.kill("SIGTERM");
        await closed;
      },
    };
    running.push(started);
    return started;
  }

  async function put(endpoints: Readonly<Record<string, string>>): Promise<void> {
    const items = [node, ...manifests(endpoints)];
    await writeFile(join(folder, "state.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(join(folder, "state.json"), join(folder, "input", "state.json"));
  }

  /** Starts a watcher. Backends that are started before it wait for it. */
  function startWatcher(): Running {
    const listen = ["to-api", "--listen", `unix://${folder}/sock`];
    return start([process.execPath, cli, "file", "-i", join(folder, "input"), ...listen]);
  }

  const command = (...options: readonly string[]): readonly string[] => [
    ...[
      process.execPath,
      main,
      "--api",
      `unix://${folder}/sock`,
      "--node-name",
      "n1",
      "--iptables-sync-period",
      "200ms",
    ],
    ...["--healthz-bind-address", "127.0.0.1:10270", "--error-delay", "200ms", "--log-level", "debug", ...options],
  ];

  /** Returns our rules of both families, without counters. */
  async function rules(): Promise<string> {
    const tools = ["iptables-save", "ip6tables-save"];
    const saved = await Promise.all(tools.map((tool) => laboratory.run(name, [tool])));
    return saved
      .flatMap((text) => text.split("\n"))
      .filter((line) => line.includes("KPNG-") && !line.startsWith(":"))
      .join("\n");
  }

  const serves = (address: string) =>
    until(
      `a rule for ${address}`,
      async () => (await rules()).includes(`--to-destination ${address}:8080`),
      20_000,
      () => running.map(({ said }) => said().slice(-2_000)).join("\n"),
    );

  async function ask(path: string): Promise<HttpAnswer> {
    agent ??= AgentClient.start(laboratory, name, [], []);
    const target = { address: "127.0.0.1", port: 10_270, path, timeoutMs: 5_000 };
    return (await agent).send({ kind: "http", ...target });
  }

  const partOf = async (part: string): Promise<Record<string, unknown>> =>
    JSON.parse((await ask("/readyz")).body).parts[part];

  test("without its watcher, a backend keeps and repairs its rules, and stays healthy", async () => {
    await put({ web: "10.0.1.1" });
    const watcher = startWatcher();
    const backend = start(command("--state-dir", "none"));
    await serves("10.0.1.1");
    const before = await rules();
    await watcher.stop();
    await until("the health answer reports the lost stream", async () => (await partOf("stream")).reason !== "");
    expect(await rules()).toBe(before);
    expect((await ask("/livez")).status).toBe(200);
    expect((await ask("/healthz")).status).toBe(200);
    // Changes by other programs are repaired without a watcher, too.
    await laboratory.run(name, ["iptables", "-t", "nat", "-F"]);
    await backend.says(/"rules repaired"/);
    await until("the same rules", async () => (await rules()) === before);
    expect((await ask("/healthz")).body).toContain('"IPv4"');
  });

  /** Runs a command as if the machine had restarted: with another boot id. */
  const afterReboot = (words: readonly string[]): readonly string[] => {
    const file = join(folder, "boot-id");
    writeFileSync(file, "11111111-2222-3333-4444-555555555555\n");
    const script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"';
    return ["unshare", "--mount", "sh", "-c", script, file, ...words];
  };

  test("without a watcher, the record in the rules decides what the saved view may change", async () => {
    await put({ web: "10.0.1.1" });
    const watcher = startWatcher();
    const state = join(folder, "state");
    const first = start(command("--state-dir", state));
    await serves("10.0.1.1");
    await until("the view is saved", () => readFile(join(state, "view")));
    await copyFile(join(state, "view"), join(folder, "old-view"));
    await put({ web: "10.0.1.2" });
    await serves("10.0.1.2");
    await Promise.all([first.stop(), watcher.stop()]);
    const before = await rules();
    const nat = await laboratory.run(name, ["iptables-save", "-t", "nat"]);
    const flush = (what: string) => laboratory.run(name, ["sh", "-c", `iptables -t nat -F ${what}`]);
    const stands = () => until("the rules are back", async () => (await rules()) === before, 30_000);

    // The saved view has the digest in the record: everything is repaired.
    const chain = /^-A (KPNG-SVC-\S+) .*10\.0\.1\.2:8080/m.exec(before)?.[1] ?? "";
    await flush(chain);
    const same = start(command("--state-dir", state));
    await same.says(/"use":"repair"/);
    await stands();
    await flush(chain);
    await stands();
    await same.stop();

    // An older saved view: jumps and fixed chains are restored, and the Service keeps its newer endpoint.
    await copyFile(join(folder, "old-view"), join(state, "view"));
    const older = start(command("--state-dir", state));
    await older.says(/"use":"frame"/);
    await stands();
    await flush("PREROUTING");
    await flush("KPNG-MARK-MASQ");
    await stands();
    // Nothing is left that packets reach: the saved view is better than that.
    await flush("");
    await serves("10.0.1.1");
    await older.stop();

    // Rules of an earlier boot, which another program has restored, make way for the saved view.
    await laboratory.run(name, ["iptables-restore", "-T", "nat"], nat);
    expect(await rules()).toContain("10.0.1.2");
    const rebooted = start(afterReboot(command("--state-dir", state)));
    await rebooted.says(/"use":"install"/);
    await serves("10.0.1.1");
    expect(await rules()).not.toContain("10.0.1.2");
  });

  const unfit: readonly { readonly name: string; readonly spoil: (view: Buffer) => Buffer; readonly says: RegExp }[] = [
    {
      name: "that is truncated",
      spoil: (view) => view.subarray(0, view.length - 40),
      says: /the checksum does not match/,
    },
    { name: "that is another file", spoil: () => Buffer.from("hello"), says: /is not a valid saved view/ },
    { name: "that is empty", spoil: () => Buffer.alloc(0), says: /is not a valid saved view/ },
  ];
  test.each(unfit)(
    "a saved view $name is logged and not used, and the watcher replaces it",
    async ({ spoil, says }) => {
      await put({ web: "10.0.1.1" });
      const state = join(folder, "state");
      await saveView(state);
      const good = await readFile(join(state, "view"));
      await writeFile(join(state, "view"), spoil(good));
      const backend = start(command("--state-dir", state));
      await backend.says(says);
      expect(await rules()).toBe("");
      expect((await ask("/readyz")).status).toBe(503);
      expect((await ask("/livez")).status).toBe(200);
      startWatcher();
      await serves("10.0.1.1");
      await until(
        "the view is replaced",
        async () => (await readFile(join(state, "view"))).length === good.length,
        20_000,
      );
    },
  );

  test("a saved view of another node is not used", async () => {
    await put({ web: "10.0.1.1" });
    const state = join(folder, "state");
    await saveView(state);
    const backend = start([...command("--state-dir", state), "--node-name", "n2"]);
    await backend.says(
      /"ignoring the saved view".*it is for node n1, not n2|it is for node n1, not n2.*"ignoring the saved view"/,
    );
    expect(await rules()).toBe("");
  });

  /** Saves the view of node n1 in the folder `state`, as a backend does; leaves no rules. */
  async function saveView(state: string): Promise<void> {
    if (savedView === undefined) {
      const watcher = startWatcher();
      const backend = start(command("--state-dir", state));
      await serves("10.0.1.1");
      await Promise.all([backend.stop(), watcher.stop()]);
      await laboratory.run(name, [process.execPath, main, "--cleanup"]);
      savedView = await readFile(join(state, "view"));
    } else {
      await mkdir(state);
      await writeFile(join(state, "view"), savedView);
    }
  }

  test.each([
    { name: "full", mount: "size=4k", fill: 'dd if=/dev/zero of="$0/fill" bs=4k count=1 2>/dev/null;' },
    { name: "read-only", mount: "size=1m,ro", fill: "" },
  ])(
    "with a disk that is $name, the view is not saved, which is logged once, and rules are installed",
    async ({ mount, fill }) => {
      await put({ web: "10.0.1.1" });
      startWatcher();
      const state = join(folder, "state");
      await mkdir(state);
      const script = `mount -t tmpfs -o ${mount} none "$0" && ${fill} exec "$@"`;
      const backend = start(["unshare", "--mount", "sh", "-c", script, state, ...command("--state-dir", state)]);
      await serves("10.0.1.1");
      await backend.says(/"view not saved: trying again"/);
      await put({ web: "10.0.1.2" });
      await serves("10.0.1.2");
      expect(backend.said().match(/"view not saved: trying again"/g)).toHaveLength(1);
      expect((await ask("/healthz")).status).toBe(200);
      expect((await ask("/metrics")).body).toMatch(/kpng_backend_view_writes_total\{result="failed"\} [1-9]/);
    },
  );

  test("a rejected transaction is reported with its line and in metrics, and the full sync after it succeeds", async () => {
    await put({ web: "10.0.1.1", api: "10.0.2.1" });
    startWatcher();
    const backend = start(command("--state-dir", "none", "--iptables-sync-period", "0"));
    await serves("10.0.2.1");
    // Our chain cannot be deleted while another program's rule jumps to it. The rule is added between two syncs, so
    // only the full sync finds it, and empties the chain instead.
    const chain = /^-A KPNG-IP-10\.96\.1\.0 .*-j (KPNG-SVC-\S+)$/m.exec(await rules())?.[1] ?? "";
    await laboratory.run(name, ["iptables", "-t", "nat", "-N", "OTHER"]);
    await laboratory.run(name, ["iptables", "-t", "nat", "-A", "OTHER", "-j", chain]);
    await put({ web: "10.0.1.1" });
    await backend.says(/"sync failed".*RESTORE_REFUSED|RESTORE_REFUSED.*"sync failed"/);
    expect(backend.said()).toMatch(
      /\[RESTORE_REFUSED\] iptables-restore rejected a transaction of \d+ lines \(exit status \d+\) at line \d+ \\"/,
    );
    const failures = (await ask("/metrics")).body;
    expect(failures).toMatch(/_iptables_restore_failures_total\{ip_family="IPv4"\} [1-9]/);
    expect(failures).toMatch(/_iptables_partial_restore_failures_total\{ip_family="IPv4"\} 1\n/);
    await backend.says(/"fullReason":"failure"/);
    await until("the rules of the Service are deleted", async () => !(await rules()).includes("10.0.2.1"));
    await until("health is good again", async () => (await partOf("rules/IPv4")).isHealthy === true);
    expect(await rules()).toContain(`-A OTHER -j ${chain}`);
    await laboratory.run(name, ["iptables", "-t", "nat", "-F", "OTHER"]);
  });

  test("inspection on a unix socket shows the view, the rules and repaired drift", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const socket = join(folder, "inspect.sock");
    const backend = start(command("--state-dir", "none", "--inspect-socket", socket));
    await serves("10.0.1.1");
    const client = createClient(BackendInspectService, dial({ api: `unix://${socket}` }));
    const first = await until("inspection shows a sync", async () => {
      const answer = await client.getBackend({});
      return answer.lastSync === undefined ? undefined : answer;
    });
    expect(first).toMatchObject({
      program: "kpng-iptables",
      nodeName: "n1",
      isConnected: true,
      serviceCount: 1,
      endpointCount: 1,
    });
    expect(first.appliedRevision).toBe(first.receivedRevision);
    expect(first.lastSync).toMatchObject({ isFull: true, error: "" });
    expect(first.ruleSets.map(({ name, drift }) => ({ name, drift }))).toEqual([
      { name: "v4", drift: [] },
      { name: "v6", drift: [] },
    ]);
    expect(first.ruleSets[0]?.lastTransaction).toContain("--to-destination 10.0.1.1:8080");
    const { ruleSets } = await client.listRules({ ruleSet: "v4" });
    expect(ruleSets).toHaveLength(1);
    expect(ruleSets[0]?.desired).toEqual(ruleSets[0]?.actual);
    expect(ruleSets[0]?.desired).toHaveLength(first.ruleSets[0]?.desiredCount ?? -1);
    expect(ruleSets[0]?.desired.join("\n")).toMatch(/^nat -A KPNG-SVC-\S+ .*--to-destination 10.0.1.1:8080$/m);
    await laboratory.run(name, ["iptables", "-t", "nat", "-F", "KPNG-MARK-MASQ"]);
    await backend.says(/"rules repaired"/);
    const repaired = await until("the repair is counted", async () => {
      const [v4] = (await client.getBackend({})).ruleSets;
      return v4?.repairCount === 1n ? v4 : undefined;
    });
    expect(repaired.lastTransaction).toContain(":KPNG-MARK-MASQ - [0:0]");
  });

  test("a version of iptables that is too old is an error at the start", async () => {
    const path = join(folder, "iptables");
    await writeFile(path, "#!/bin/sh\necho 'iptables v1.4.21'\n");
    await chmod(path, 0o755);
    const { exitCode, stderr } = await laboratory.tryRun(name, [
      "env",
      `PATH=${folder}:${process.env.PATH}`,
      ...command("--state-dir", "none"),
    ]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("[IPTABLES_TOO_OLD] iptables has version 1.4.21; at least 1.6.2 is required");
  });

  test("without ip6tables, only IPv4 is served, also in health and metrics", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const path = join(folder, "ip6tables");
    await writeFile(path, "#!/bin/sh\nexit 127\n");
    await chmod(path, 0o755);
    const backend = start(["env", `PATH=${folder}:${process.env.PATH}`, ...command("--state-dir", "none")]);
    await serves("10.0.1.1");
    await backend.says(/"not serving this family"/);
    expect(Object.keys(JSON.parse((await ask("/healthz")).body).status)).toEqual(["IPv4"]);
    expect((await ask("/metrics")).body).not.toContain('ip_family="IPv6"');
  });

  test("only the default instance sets the conntrack options", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const timeout = () => laboratory.run(name, ["cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"]);
    const set = ["--state-dir", "none", "--conntrack-udp-timeout", "77s"];
    await laboratory.run(name, command(...set, "--service-proxy-name", "edge", "--once"));
    expect(await timeout()).not.toBe("77\n");
    await laboratory.run(name, command(...set, "--once"));
    expect(await timeout()).toBe("77\n");
    expect(await laboratory.run(name, ["cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"])).toBe(
      "86400\n",
    );
  });
});
