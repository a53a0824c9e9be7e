import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createPod, createService, createSlice, slicesPath, untilSlicesHold } from "./objects.ts";

// The programs on a real cluster, from the API server to the view of a node.
await describeCluster("kpng kube", {}, (cluster) => {
  const programs: Program[] = [];

  afterEach(async () => {
    for (const program of programs.splice(0)) {
      program.kill();
      await program.ended;
    }
  });

  function kpng(...args: string[]): Program {
    const program = startProgram(pathToFileURL(programFile("cli")), args);
    programs.push(program);
    return program;
  }

  const kube = (...args: string[]): Program => kpng("kube", "--kubeconfig", cluster().kubeconfig("admin"), ...args);
  const socket = (): string => `unix://${join(cluster().folder, "api.sock")}`;

  /** Returns the current view of a node, one parsed line per Service. */
  async function told(program: Program): Promise<readonly ServiceLine[]> {
    expect(await program.ended, program.stderr()).toBe(0);
    return program
      .stdout()
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  }

  interface ServiceLine {
    readonly Service: { readonly Name: string; readonly Labels?: object; readonly IPs: object };
    readonly Endpoints: readonly { readonly IPs: object; readonly Local?: boolean }[] | null;
  }

  test("a node that asks for a proxy name gets its headless dual-stack Service with both families", async () => {
    const { api } = cluster();
    await createNode(api, "node-1");
    const spec = {
      clusterIP: "None",
      externalIPs: ["198.51.100.10", "2001:db8:100::10"],
      ipFamilyPolicy: "RequireDualStack",
      ports: [{ name: "http", port: 80, targetPort: "http" }],
    };
    const labels = { "service.kubernetes.io/service-proxy-name": "allip" };
    await createService(api, { name: "all-ip", labels, spec });
    await createPod(api, { name: "all-ip-1", app: "all-ip", node: "node-1", ip: "10.244.0.1" });
    const podIPs = [{ ip: "10.244.0.1" }, { ip: "fd00:10:244::1" }];
    await api.patch("/api/v1/namespaces/default/pods/all-ip-1/status", { status: { podIPs } });
    await untilSlicesHold(api, "all-ip", 2);
    const watcher = kube("to-api", "--listen", socket());
    await watcher.said("listening");
    const local = ["local", "--api", socket(), "to-json", "--node-name", "node-1", "--once"];
    const lines = await told(kpng(...local, "--service-proxy-name", "allip"));
    expect(lines).toMatchObject([
      {
        Service: {
          Name: "all-ip",
          IPs: { ExternalIPs: { V4: ["198.51.100.10"], V6: ["2001:db8:100::10"] }, Headless: true },
        },
      },
    ]);
    const endpoints = (lines[0]?.Endpoints ?? []).map(({ IPs, Local }) => ({ IPs, Local }));
    expect(endpoints).toHaveLength(2);
    expect(endpoints).toContainEqual({ IPs: { V4: ["10.244.0.1"] }, Local: true });
    expect(endpoints).toContainEqual({ IPs: { V6: ["fd00:10:244::1"] }, Local: true });
    const others = await told(kpng(...local));
    expect(others.map(({ Service }) => Service.Name)).toEqual(["kubernetes"]);
  });

  test("the view from the API server equals the view from a file written by kpng", async () => {
    const { api, folder } = cluster();
    await createService(api, {
      name: "labelled",
      labels: { tier: "front", other: "x" },
      spec: { sessionAffinity: "ClientIP" },
    });
    await createSlice(api, { name: "labelled-1", service: "labelled", addresses: ["10.1.0.1", "10.1.0.2"] });
    const node = ["--node-name", "node-1", "--once"];
    const fromServer = await told(kube("--with-service-labels", "ti*", "to-local", "to-json", ...node));
    expect(fromServer.find(({ Service }) => Service.Name === "labelled")?.Service.Labels).toEqual({ tier: "front" });
    const file = join(folder, "state.yaml");
    const writer = kube("--with-service-labels", "ti*", "to-file", "-o", file);
    await writer.said("state written");
    expect(await told(kpng("file", "-i", file, "to-local", "to-json", ...node))).toEqual(fromServer);
  });

  test("a change at the API server reaches a backend behind a relay", async () => {
    const { api, folder } = cluster();
    const relayed = `unix://${join(folder, "relay.sock")}`;
    const watcher = kube("to-api", "--listen", socket());
    const relay = kpng("api", "--api", socket(), "to-api", "--listen", relayed);
    for (const program of [watcher, relay]) await program.said("listening");
    const backend = kpng("local", "--api", relayed, "to-json", "--node-name", "node-1");
    await expect.poll(() => backend.stdout()).toContain('"10.1.0.1"');
    const endpoints = [{ addresses: ["10.1.0.77"], conditions: { ready: true } }];
    await api.patch(`${slicesPath()}/labelled-1`, { endpoints });
    await expect.poll(() => backend.stdout()).toContain('"10.1.0.77"');
  });

  test("a watcher that may not list a kind names it in its readiness, and serves nothing until it can", async () => {
    const program = kpng(
      "kube",
      "--kubeconfig",
      cluster().kubeconfig("kpng"),
      "to-local",
      "to-json",
      "--node-name",
      "n",
      "--once",
    );
    await program.said("forbidden");
    expect(program.stdout()).toBe("");
    program.stop();
    expect(await program.ended).toBe(0);
  });
});
