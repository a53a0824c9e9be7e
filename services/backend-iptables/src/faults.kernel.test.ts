import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { BackendInspectService } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { until } from "../../../test/cluster/until.ts";
import { describeProgram } from "./testing/describe-program.ts";

describeProgram("kpng-iptables as a program, when something fails", (node) => {
  const { run, tryRun, start, put, startWatcher, command, rules, serves, ask, partOf, folder } = node;

  test("a rejected transaction is reported with its line and in metrics, and the full sync after it succeeds", async () => {
    await put({ web: "10.0.1.1", api: "10.0.2.1" });
    startWatcher();
    const backend = start(command("--state-dir", "none", "--iptables-sync-period", "0"));
    await serves("10.0.2.1");
    // Our chain cannot be deleted while another program's rule jumps to it.
    const chain = /^-A KPNG-IP-10\.96\.1\.0 .*-j (KPNG-SVC-\S+)$/m.exec(await rules())?.[1] ?? "";
    await run(["iptables", "-t", "nat", "-N", "OTHER"]);
    await run(["iptables", "-t", "nat", "-A", "OTHER", "-j", chain]);
    await put({ web: "10.0.1.1" });
    await backend.says(/"sync failed".*RESTORE_REFUSED|RESTORE_REFUSED.*"sync failed"/);
    expect(backend.said()).toMatch(
      /\[RESTORE_REFUSED\] iptables-restore rejected a transaction of \d+ lines \(exit status \d+\) at line \d+ \\"/,
    );
    const failures = (await ask("/metrics")).body;
    expect(failures).toMatch(/_iptables_restore_failures_total\{ip_family="IPv4"\} [1-9]/);
    expect(failures).toMatch(/_iptables_partial_restore_failures_total\{ip_family="IPv4"\} 1\n/);
    await run(["iptables", "-t", "nat", "-F", "OTHER"]);
    await backend.says(/"fullReason":"failure"/);
    await until("the rules of the Service are deleted", async () => !(await rules()).includes("10.0.2.1"));
    await until("health is good again", async () => (await partOf("rules/IPv4")).isHealthy === true);
  });

  test("inspection on a unix socket shows the view, the rules and repaired drift", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const socket = join(folder(), "inspect.sock");
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
    await run(["iptables", "-t", "nat", "-F", "KPNG-MARK-MASQ"]);
    await backend.says(/"rules repaired"/);
    const repaired = await until("the repair is counted", async () => {
      const [v4] = (await client.getBackend({})).ruleSets;
      return v4?.repairCount === 1n ? v4 : undefined;
    });
    expect(repaired.lastTransaction).toContain(":KPNG-MARK-MASQ - [0:0]");
  });

  test("a version of iptables that is too old is an error at the start", async () => {
    const path = join(folder(), "iptables");
    await writeFile(path, "#!/bin/sh\necho 'iptables v1.4.21'\n");
    await chmod(path, 0o755);
    const { exitCode, stderr } = await tryRun([
      "env",
      `PATH=${folder()}:${process.env.PATH}`,
      ...command("--state-dir", "none"),
    ]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("[IPTABLES_MISSING] iptables has version 1.4.21; at least 1.6.2 is required");
  });

  test("without ip6tables, only IPv4 is served, also in health and metrics", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const path = join(folder(), "ip6tables");
    await writeFile(path, "#!/bin/sh\nexit 127\n");
    await chmod(path, 0o755);
    const backend = start(["env", `PATH=${folder()}:${process.env.PATH}`, ...command("--state-dir", "none")]);
    await serves("10.0.1.1");
    await backend.says(/"not serving this family"/);
    expect(Object.keys(JSON.parse((await ask("/healthz")).body).status)).toEqual(["IPv4"]);
    expect((await ask("/metrics")).body).not.toContain('ip_family="IPv6"');
  });

  test("only the default instance sets the conntrack options", async () => {
    await put({ web: "10.0.1.1" });
    startWatcher();
    const timeout = () => run(["cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"]);
    const set = ["--state-dir", "none", "--conntrack-udp-timeout", "77s"];
    await run(command(...set, "--service-proxy-name", "edge", "--once"));
    expect(await timeout()).not.toBe("77\n");
    await run(command(...set, "--once"));
    expect(await timeout()).toBe("77\n");
    expect(await run(["cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"])).toBe("86400\n");
  });
});
