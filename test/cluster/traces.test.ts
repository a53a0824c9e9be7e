import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { backendStages, faultOfWay, stageNames, startOtlpReceiver, tracesOf, watcherStages } from "../trace/traces.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createPod, createService, untilSlicesHold } from "./objects.ts";

await describeCluster("a trace", {}, (cluster) => {
  test("a trace covers the event of the API server up to the commit on two nodes, with the time of the pod's change", {
    timeout: 60_000,
  }, async (context) => {
    const { api, folder } = cluster();
    const nodes = ["node-1", "node-2"];
    for (const name of nodes) await createNode(api, name, `zone-of-${name}`);
    await createService(api, { name: "traced" });
    await createPod(api, { name: "traced-1", app: "traced", node: "node-1", ip: "10.244.7.1" });
    await untilSlicesHold(api, "traced", 1);
    await using receiver = await startOtlpReceiver();
    const programs: Program[] = [];
    const kpng = (...args: string[]): Program => {
      const main = pathToFileURL(programFile("cli"));
      const program = startProgram(main, [...args, "--log-level", "debug"], receiver.environment);
      programs.push(program);
      return program;
    };
    try {
      const socket = `unix://${join(folder, "traces.sock")}`;
      const watcher = kpng("kube", "--kubeconfig", cluster().kubeconfig("admin"), "to-api", "--listen", socket);
      await watcher.said('"msg":"listening"');
      const from = ["local", "--api", socket, "to-callout", "--callout", "true"];
      const backends = nodes.map((name) => kpng(...from, "--node-name", name));
      await Promise.all(backends.map((backend) => backend.said('"msg":"sync complete"')));
      await createPod(api, { name: "traced-2", app: "traced", node: "node-2", ip: "10.244.7.2" });
      const whole = () =>
        tracesOf(receiver.spans).find(
          (trace) =>
            nodes.every((name) => trace.nodes.includes(name)) &&
            // The spans of sends are exported last.
            trace.spans.filter(({ name }) => name === "stream.send").length === nodes.length,
        );
      await receiver.until(() => whole() !== undefined, context.signal);
      const trace = whole();
      if (trace === undefined) throw new Error("trace not found");
      expect(stageNames(trace)).toEqual([...backendStages, ...watcherStages].sort());
      for (const node of nodes) expect(faultOfWay(trace, node)).toBeUndefined();
      expect(trace.root.attributes).toMatchObject({
        "kpng.source": "kube",
        "kpng.services": expect.arrayContaining(["default/traced"]),
        "kpng.last_change_trigger_times": [expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$/)],
      });
    } finally {
      for (const program of programs) {
        program.kill();
        await program.ended;
      }
    }
  });
});
