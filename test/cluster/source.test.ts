import assert from "node:assert/strict";
import { join } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { describe, expect, test } from "vitest";
import { kpngMain, usePrograms } from "../process/programs.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createPod, createService, createSlice, untilSlicesHold } from "./objects.ts";
import { sourceStarter } from "./run-source.ts";

await describeCluster("a real cluster", {}, (cluster) => {
  describe("the Kubernetes source", () => {
    const start = sourceStarter();

    test("the source delivers each kind as a whole first, and then its changes", async () => {
      const { api, kubeconfig } = cluster();
      await createNode(api, "node-1", "zone-b");
      await createService(api, { name: "web" });
      const source = start({ kubeconfig: kubeconfig("admin") });
      await source.untilReady();
      for (const kind of ["services", "slices", "nodes"] as const) assert.equal(source.sink.replaceCountOf(kind), 1);
      assert.deepEqual(source.sink.services, ["default/kubernetes", "default/web"]);
      assert.equal(source.sink.store.snapshot.nodes.get("node-1")?.zone, "zone-b");

      await createPod(api, { name: "web-1", app: "web", node: "node-1", ip: "10.244.0.1" });
      await createPod(api, { name: "web-2", app: "web", node: "node-1", ip: "10.244.0.2" });
      await source.until("two endpoints", (sink) => sink.addressesOf("default/web").length === 2);
      await api.delete("/api/v1/namespaces/default/pods/web-1");
      await source.until("one endpoint", (sink) => sink.addressesOf("default/web").length === 1);
      await api.delete("/api/v1/namespaces/default/services/web");
      await source.until("the Service is gone", (sink) => !sink.services.includes("default/web"));
      for (const kind of ["services", "slices", "nodes"] as const) assert.equal(source.sink.replaceCountOf(kind), 1);
      assert.deepEqual(source.sink.store.snapshot.serviceCIDRs, ["10.96.0.0/16", "fd00:10:96::/108"]);
    });
  });

  describe("kpng kube, from the API server to the view of a node", () => {
    const { start } = usePrograms();
    const kpng = (...args: string[]): Program => start(kpngMain, args);
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
      const IPs = { ExternalIPs: { V4: ["198.51.100.10"], V6: ["2001:db8:100::10"] }, Headless: true };
      expect(lines).toMatchObject([{ Service: { Name: "all-ip", IPs } }]);
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
  });
});
