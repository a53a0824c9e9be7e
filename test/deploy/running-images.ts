import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../cluster/until.ts";
import { cgroupMount } from "../kernel/laboratory/bpf.ts";
import { startOtlpReceiver } from "../trace/traces.ts";
import type { DockerDaemon } from "./docker-daemon.ts";
import { change, currentNodes, hasTraced, type ImageFigures, idleMs, readProcess } from "./process-figures.ts";

/** Images of backends. `ebpf` and `ipvs` need more of the kernel than the others. */
export type ServingImage = "json" | "callout" | "iptables" | "nft" | "ipvs" | "ebpf" | "userspace";

const keepsKernelSettings = [
  "--conntrack-max-per-core=0",
  "--conntrack-tcp-timeout-established=0",
  "--conntrack-tcp-timeout-close-wait=0",
];

const rules = ["--cap-add=NET_ADMIN", "--cap-add=NET_RAW"];

/** Options of `docker run`, and of the program. */
const runs: Readonly<Record<ServingImage, { readonly docker: readonly string[]; readonly args: readonly string[] }>> = {
  json: { docker: [], args: [] },
  callout: { docker: rules, args: ["--callout=true"] },
  iptables: { docker: rules, args: [...keepsKernelSettings, "--iptables-localhost-nodeports=false"] },
  nft: { docker: rules, args: keepsKernelSettings },
  ipvs: { docker: rules, args: keepsKernelSettings },
  // SYS_ADMIN contains BPF and PERFMON, whose names Docker 20.10 does not know.
  ebpf: {
    docker: [
      ...["--cap-add=NET_ADMIN", "--cap-add=SYS_ADMIN"],
      "--mount=type=volume,target=/sys/fs/bpf,volume-opt=type=bpf,volume-opt=device=bpf",
    ],
    args: [...keepsKernelSettings, "--cgroup=/host/cgroup"],
  },
  userspace: { docker: rules, args: [] },
};

/** Time limit of each wait on a busy machine, in milliseconds. */
const limitMs = 120_000;

interface Started {
  readonly id: string;
  readonly pid: number;
}

/**
 * Runs containers of images, each in a network of its own and with the rights of docker-compose.yaml: a watcher that
 * reads manifests, and backends that follow it through a unix socket. With `traces`, all export traces to a collector
 * outside of them. Then one change arrives. Returns the figures of each image, with `watcher`.
 *
 * Errors: an image that does not serve, or exports no span of the change, with the end of its log.
 */
export async function runImages(
  docker: DockerDaemon["docker"],
  backends: readonly ServingImage[],
  traces: "with traces" | "without traces",
): Promise<ReadonlyMap<string, ImageFigures>> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-images-"));
  const socket = (name: string): string => join(folder, `${name}.sock`);
  const receiver = await startOtlpReceiver(`unix:${socket("otlp")}`);
  // A cgroup of the test alone: programs in the root of the machine would serve every process.
  const cgroup = backends.includes("ebpf") ? join(cgroupMount() ?? "", `kpng-test-images-${process.pid}`) : undefined;
  const started = new Map<string, Started>();
  const exporter = [
    "--env=OTEL_EXPORTER_OTLP_ENDPOINT=unix:///shared/otlp.sock",
    "--env=OTEL_EXPORTER_OTLP_INSECURE=true",
  ];
  const environment = traces === "with traces" ? exporter : [];
  const start = async (image: string, options: readonly string[], command: readonly string[]): Promise<void> => {
    const id = await docker(
      ...["run", "--detach", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"],
      ...["--memory=256m", "--pids-limit=64", "--tmpfs=/var/lib/kpng:size=8m,mode=0700", "--tmpfs=/run:size=1m"],
      ...[`--volume=${folder}:/shared`, ...environment, ...options, `kpng-${image}`, ...command],
    );
    started.set(image, { id, pid: Number(await docker("inspect", "--format", "{{.State.Pid}}", id)) });
  };
  const logs = async (): Promise<string> => {
    const paths = [...started.values()].map(({ id }) => docker("inspect", "--format", "{{.LogPath}}", id));
    return (await Promise.all(paths)).map((path) => readFileSync(path, "utf8").slice(-2_000)).join("\n");
  };
  try {
    // The watcher has another user.
    chmodSync(folder, 0o777);
    chmodSync(socket("otlp"), 0o666);
    cpSync("deploy/compose/manifests", join(folder, "manifests"), { recursive: true });
    if (cgroup !== undefined) mkdirSync(cgroup);
    const listen = "--listen=unix:///shared/watcher.sock";
    await start("watcher", [], ["file", "--input=/shared/manifests", "to-api", listen]);
    for (const image of backends) {
      const { docker: options, args } = runs[image];
      const mounts = image === "ebpf" ? [`--volume=${cgroup}:/host/cgroup:ro`] : [];
      const command = ["--api=unix:///shared/watcher.sock", `--node-name=${image}`, ...args];
      await start(image, [...options, ...mounts], command);
    }
    const areCurrent = async (): Promise<boolean> =>
      new Set(await currentNodes(socket("watcher"))).isSupersetOf(new Set(backends));
    await until("all nodes are current", areCurrent, limitMs);
    const startCpuS = new Map([...started].map(([image, { pid }]) => [image, readProcess(pid).cpuS]));
    writeFileSync(join(folder, "manifests/change.yaml"), change);
    for (const image of traces === "with traces" ? started.keys() : []) {
      await until(`kpng-${image} exports a span`, () => hasTraced(receiver.spans, image), limitMs);
    }
    await sleep(idleMs);
    return new Map(
      [...started].map(([image, { pid }]) => [
        image,
        { startCpuS: startCpuS.get(image) ?? 0, idleMB: readProcess(pid).residentMB },
      ]),
    );
  } catch (cause) {
    throw new Error(`${String(cause)}\n${await logs()}`, { cause });
  } finally {
    for (const { id } of started.values()) await docker("rm", "--force", "--volumes", id);
    await receiver[Symbol.asyncDispose]();
    if (cgroup !== undefined && existsSync(cgroup)) rmdirSync(cgroup);
    rmSync(folder, { recursive: true, force: true });
  }
}
