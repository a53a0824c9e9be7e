import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test } from "vitest";
import { kpngMain, usePrograms } from "../process/programs.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService, createSlice, slicesPath } from "./objects.ts";
import { freePorts } from "./ports.ts";
import { until } from "./until.ts";

// A watcher and nodes as real processes. Frozen watchers and those that are behind are tested in
// test/process/stale-watchers.test.ts.

/** For each wait: all programs share two cores. */
const patienceMs = 60_000;

/** Last bytes of the Service's endpoint that a node has printed, without repetitions in a row. */
function endpointsIn(node: Program): string {
  const bytes = [...node.stdout().matchAll(/"10\.3\.0\.(\d+)"/g)].map(([, last = ""]) => last);
  return bytes.filter((byte, index) => byte !== bytes[index - 1]).join();
}

await describeCluster("a node after a restore of etcd", { hasControllers: false }, (cluster) => {
  const programs = usePrograms();

  test("keeps its newer state, and accepts the older one only when its time is over", {
    timeout: 300_000,
  }, async () => {
    const { api, apiServer, etcd, kubeconfig } = cluster();
    const setEndpoint = (last: number) =>
      api.patch(`${slicesPath()}/web`, { endpoints: [{ addresses: [`10.3.0.${last}`], conditions: { ready: true } }] });
    await createNode(api, "node-1");
    await createService(api, { name: "web" });
    await createSlice(api, { name: "web", service: "web", addresses: ["10.3.0.1"] });
    await etcd.save();
    await until("the API server has its etcd again", () => api.get(`${slicesPath()}/web`), patienceMs);

    const [port = 0, metricsOfPatient = 0, metricsOfHasty = 0] = await freePorts(3);
    const listen = ["to-api", "--listen", `tcp://127.0.0.1:${port}`];
    const watcher = programs.start(kpngMain, ["kube", "--kubeconfig", kubeconfig("admin"), ...listen]);
    await watcher.said("listening");
    const startNode = (acceptAfter: string, metricsPort: number): Program =>
      programs.start(kpngMain, [
        ...["local", "--api", `127.0.0.1:${port}`, "to-json", "--node-name", "node-1", "--error-delay", "100ms"],
        ...["--accept-older-after", acceptAfter, "--metrics-bind-address", `127.0.0.1:${metricsPort}`],
      ]);
    const prints = (node: Program, endpoints: string) =>
      until(
        `the node prints ${endpoints}`,
        () => endpointsIn(node) === endpoints,
        patienceMs,
        () => {
          return `it printed ${endpointsIn(node)}\n${node.stderr().slice(-4_000)}`;
        },
      );
    const counts = async (result: string, metricsPort: number): Promise<boolean> => {
      const response = await fetch(`http://127.0.0.1:${metricsPort}/metrics`);
      return new RegExp(`^kpng_backend_older_states_total\\{result="${result}"\\} [1-9]`, "m").test(
        await response.text(),
      );
    };
    const patient = startNode("1h", metricsOfPatient);
    const hasty = startNode("5s", metricsOfHasty);
    // Far ahead of the backup: the restored server counts, too, and must not reach the version meanwhile.
    for (let count = 0; count < 300; count++) {
      await api.patch(`${slicesPath()}/web`, { metadata: { annotations: { count: String(count) } } });
    }
    await prints(patient, "1");
    await setEndpoint(4);
    await Promise.all([prints(patient, "1,4"), prints(hasty, "1,4")]);

    await apiServer.kill();
    await etcd.restore();
    await apiServer.start();
    await prints(hasty, "1,4,1");
    expect(await counts("accepted", metricsOfHasty)).toBe(true);
    await setEndpoint(5);
    await prints(hasty, "1,4,1,5");
    await until("the other node was offered older states", () => counts("refused", metricsOfPatient));
    expect(endpointsIn(patient)).toBe("1,4");
  });
});
