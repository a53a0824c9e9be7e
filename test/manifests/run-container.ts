import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { Child } from "../cluster/child.ts";
import { until } from "../cluster/until.ts";
import { commandLineOf } from "./kustomizations.ts";
import type { Machine } from "./machine.ts";
import type { Container, PodSpec } from "./pod-spec.ts";
import type { Pod } from "./pods.ts";
import { environmentOf } from "./pods.ts";
import { prepareVolumes, type VolumeSources } from "./volumes.ts";

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** A running container. */
export interface RunningContainer {
  /** Waits until a probe of the manifest is answered with this status, 200 by default. */
  untilProbe(kind: "liveness" | "readiness", status?: number): Promise<void>;
  /** Runs a program of ours in the container, as `kubectl exec` does, and returns its output. */
  exec(program: string, args: readonly string[]): string;
  /** Output of the container so far. */
  output(): string;
  /** Stops it as a kubelet does, with SIGTERM. */
  stop(): Promise<void>;
}

/**
 * Runs the container of a pod with the real program: with the user, capabilities, environment, volumes and read-only
 * root of the manifest, in the network of `machine`. It replaces kubelet, runtime and image; files of the image are
 * those of this machine. Needs root.
 */
export async function runContainer(machine: Machine, pod: Pod, sources: VolumeSources): Promise<RunningContainer> {
  const [container] = pod.spec.containers;
  if (container === undefined) throw new Error("the pod has no container");
  const mounts = await prepareVolumes(pod, sources);
  const environment = await environmentOf(sources.api, pod);
  const root = join(sources.folder, "root");
  mkdirSync(root, { recursive: true });
  const [program = "", ...args] = commandLineOf(container);
  const enter = enterOf(pod.spec, container, environment);
  const script = [
    "set -eu",
    `mount -t tmpfs -o mode=755 tmpfs ${quote(root)}`,
    ...systemFolders().map((path) => bind(path, join(root, path), true)),
    ...mounts.flatMap(({ from, to, isReadOnly, prepare = [] }) => [...prepare, bind(from, join(root, to), isReadOnly)]),
    ...links().map(([path, target]) => `ln -s ${quote(target)} ${quote(join(root, path))}`),
    `mkdir -p ${quote(`${root}/tmp`)}`,
    ...(container.securityContext?.readOnlyRootFilesystem === true ? [`mount -o remount,ro ${quote(root)}`] : []),
    `exec chroot ${quote(root)} ${[...enter, ...commandOf(program), ...args].map(quote).join(" ")}`,
  ];
  const path = join(sources.folder, "start.sh");
  writeFileSync(path, `${script.join("\n")}\n`);
  const log = join(sources.folder, "container.log");
  const child = new Child(pod.name, ["ip", "netns", "exec", machine.name, "bash", path], log);
  child.start();
  return {
    untilProbe: async (kind, status = 200) => {
      const { host = "127.0.0.1", port, path: probed = "/" } = probeOf(container, kind);
      const ended = "it has ended";
      const answer = await until(
        `${kind} of ${pod.name}`,
        () => (child.isRunning ? machine.get(host, port, probed) === status && "answered" : ended),
        90_000,
        () => child.tail(40),
      );
      if (answer === ended) throw new Error(`container ${pod.name} has ended:\n${child.tail(40)}`);
    },
    exec: (name, more) => {
      const namespaces = ["--target", String(child.pid), "--net", "--mount", "--root"];
      return execFileSync("nsenter", [...namespaces, ...enter, ...commandOf(name), ...more], { encoding: "utf8" });
    },
    output: () => child.tail(1_000),
    stop: () => child.stop(),
  };
}

/** Returns the port of a probe as a number: a probe may name a port of the container. */
function probeOf(container: Container, kind: "liveness" | "readiness") {
  const probe = kind === "liveness" ? container.livenessProbe : container.readinessProbe;
  if (probe?.httpGet === undefined) throw new Error(`container ${container.name} has no ${kind} probe over HTTP`);
  const { host, port, path } = probe.httpGet;
  const named = container.ports?.find(({ name }) => name === port)?.containerPort;
  return { host, port: Number(named ?? port), path };
}

function commandOf(program: string): readonly string[] {
  const service = program === "kpng" ? "cli" : program.replace("kpng-", "backend-");
  return [process.execPath, resolve(`services/${service}/src/main.ts`)];
}

/** Command that takes on the user, the capabilities and the environment of the container. */
function enterOf(
  { securityContext: ofPod }: PodSpec,
  { securityContext = {} }: Container,
  values: Readonly<Record<string, string>>,
) {
  const user = String(securityContext.runAsUser ?? ofPod?.runAsUser ?? 0);
  const group = String(securityContext.runAsGroup ?? ofPod?.runAsGroup ?? user);
  const { drop = [], add = [] } = securityContext.capabilities ?? {};
  if (!drop.includes("ALL")) throw new Error("the container does not drop all capabilities");
  const capabilities = ["-all", ...add.map((name) => `+${name.toLowerCase()}`)].join(",");
  return [
    ...["/usr/bin/setpriv", "--reuid", user, "--regid", group, "--groups", String(ofPod?.fsGroup ?? group)],
    ...["--bounding-set", capabilities, "--inh-caps", "-all", "--pdeathsig", "KILL"],
    ...(securityContext.allowPrivilegeEscalation === false ? ["--no-new-privs"] : []),
    ...["/usr/bin/env", "-i", `PATH=${dirname(process.execPath)}:${systemPath}`],
    ...Object.entries(values).map(([name, value]) => `${name}=${value}`),
  ];
}

/**
 * Folders of this machine that take the place of the image: its tools, Node.js and our programs. /usr/share is left
 * out, where the images have files of ours.
 */
function systemFolders(): readonly string[] {
  const usr = readdirSync("/usr").filter((name) => name !== "share");
  const system = [...usr.map((name) => `/usr/${name}`), "/bin", "/sbin", "/lib", "/lib64"].filter(
    (path) => existsSync(path) && !isLink(path),
  );
  const files = ["alternatives", "hosts", "nsswitch.conf", "protocols", "passwd", "group"].map(
    (name) => `/etc/${name}`,
  );
  // /proc/sys is there as in every container without privileges.
  const kernel = ["/proc", "/sys", "/dev", "/proc/sys"];
  return [...system, ...kernel, ...files.filter(existsSync), process.execPath, resolve(".")];
}

function links(): readonly (readonly [string, string])[] {
  return ["/bin", "/sbin", "/lib", "/lib64"].filter(isLink).map((path) => [path, readlinkSync(path)] as const);
}

function isLink(path: string): boolean {
  return existsSync(path) && lstatSync(path).isSymbolicLink();
}

function bind(from: string, to: string, isReadOnly: boolean): string {
  const isFile = !lstatSync(from).isDirectory();
  const make = isFile
    ? `mkdir -p ${quote(dirname(to))} && { [ -e ${quote(to)} ] || : > ${quote(to)}; }`
    : `mkdir -p ${quote(to)}`;
  const mount = `mount --rbind ${quote(from)} ${quote(to)}`;
  return [make, mount, ...(isReadOnly ? [`mount -o remount,bind,ro ${quote(to)}`] : [])].join("\n");
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
