import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePorts } from "../cluster/ports.ts";
import type { MadeChange } from "./batches.ts";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers, ServerUsage } from "./fan-out-server.ts";
import { monotonicMs, usageOf } from "./proc.ts";
import { startProgram, startServer } from "./processes.ts";
import { endpointChange } from "./scripts.ts";
import { makeCluster, type SyntheticCluster, type SyntheticShape } from "./synthetic.ts";

/** Paths of the PEM files of both sides. */
export interface TlsFilePaths {
  readonly ca: string;
  readonly server: { readonly key: string; readonly crt: string };
  readonly client: { readonly key: string; readonly crt: string };
}

/** Server measured by a row of the benchmark, ours or another. */
export interface ServerUnderTest {
  /** `host:port`. */
  readonly address: string;
  /** Changes one endpoint. `cpuMs` is the server's CPU time before the change. */
  change(): Promise<MadeChange & { readonly cpuMs: number }>;
  /** CPU time so far, all threads, in milliseconds. */
  cpu(): Promise<number>;
  usage(settle: boolean): Promise<ServerUsage>;
  stop(): Promise<void>;
}

/** Our watcher, which offers more calls than other servers. */
export interface OwnServer extends ServerUnderTest {
  readonly calls: Caller<FanOutServerHandlers>;
}

export async function startOwnServer(shape: SyntheticShape, tls: TlsFilePaths | undefined): Promise<OwnServer> {
  const calls = startServer<FanOutServerHandlers>("fan-out-server");
  try {
    const paths = tls === undefined ? {} : { tls: { ...tls.server, ca: tls.ca } };
    const { address } = await calls.call("start", { shape, ...paths });
    return {
      address,
      change: () => calls.call("change", {}),
      cpu: () => calls.call("cpu", {}),
      usage: (settle) => calls.call("usage", { settle }),
      stop: () => calls.stop(),
      calls,
    };
  } catch (error) {
    await calls.stop();
    throw error;
  }
}

/**
 * Starts the original KPNG in Go, or another program that accepts `kpng file -i … to-api --listen …`. It follows a
 * state file, and the benchmark makes a change by replacing the file.
 *
 * Its latencies start when the file is replaced, so they include up to one second until it polls the file, and the time
 * to read all of it. Its CPU time per change includes the reading.
 */
export async function startKpng(program: string, shape: SyntheticShape): Promise<ServerUnderTest> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-state-"));
  const file = join(folder, "state.yaml");
  const cluster = makeCluster(shape);
  const slices = new Map(cluster.slices.map((slice) => [slice.name, slice]));
  const write = (): void => {
    writeFileSync(`${file}.new`, stateFile({ ...cluster, slices: [...slices.values()] }));
    renameSync(`${file}.new`, file);
  };
  write();
  const [port = 0] = await freePorts(1);
  const child = startProgram(program, ["file", "-i", file, "to-api", "--listen", `tcp://127.0.0.1:${port}`], "server");
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    said = `${said}${chunk}`.slice(-2_000);
  });
  const { pid = 0 } = child;
  let changesMade = 0;
  const server: ServerUnderTest = {
    address: `127.0.0.1:${port}`,
    change: async () => {
      const change = endpointChange(changesMade, shape);
      changesMade += 1;
      if (change.kind === "put-slice") slices.set(change.slice.name, change.slice);
      const { cpuMs } = usageOf(pid);
      write();
      return { revision: 0, atMs: monotonicMs(), cpuMs };
    },
    cpu: async () => usageOf(pid).cpuMs,
    usage: async () => ({ ...usageOf(pid), heapBytes: Number.NaN }),
    stop: async () => {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await gone;
      }
      rmSync(folder, { recursive: true });
    },
  };
  for (let tries = 0; !(await answers(port)); tries += 1) {
    if (tries === 100 || child.exitCode !== null) {
      await server.stop();
      throw new Error(`${program} does not listen; its output: ${said}`);
    }
    await sleep(100);
  }
  return server;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** Returns KPNG's state file as JSON, which is valid YAML: names in lower case, protocols by number. */
function stateFile({ services, slices, nodes }: SyntheticCluster): string {
  const endpointsByService = Map.groupBy(slices, (slice) => slice.serviceName);
  return JSON.stringify({
    nodes: nodes.map(({ name, zone }) => ({ name, topology: { node: name, zone }, labels: {}, annotations: {} })),
    services: services.map(({ namespace, name, type, clusterIPs, ports }) => ({
      service: {
        namespace,
        name,
        type,
        ips: { clusterips: { v4: clusterIPs?.v4 ?? [], v6: [] }, headless: false },
        ports: ports.map(({ name: portName, port }) => ({
          name: portName,
          protocol: 1,
          port,
          targetport: 8080,
        })),
      },
      endpoints: (endpointsByService.get(name) ?? []).flatMap((slice) =>
        slice.endpoints.map((endpoint) => ({
          podname: endpoint.podName,
          endpoint: {
            ips: { v4: endpoint.addresses.v4, v6: [] },
            portoverrides: endpoint.ports.map(({ name: portName, port }) => ({ name: portName, port })),
          },
          conditions: { ready: endpoint.conditions.ready },
          topology: { node: endpoint.nodeName, zone: endpoint.zone },
        })),
      ),
    })),
  });
}
