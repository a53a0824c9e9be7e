import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { withLock } from "../cluster/test-cache.ts";
import { until } from "../cluster/until.ts";

const run = promisify(execFile);

/**
 * A Docker daemon of this test alone, with a cache of images in ~/.cache/kpng/docker. It changes no rules of this
 * machine, and stops with everything in it when it is disposed of.
 */
export interface DockerDaemon extends AsyncDisposable {
  /** Environment for the programs `docker` and `docker-compose`. */
  readonly env: NodeJS.ProcessEnv;
  /** Runs `docker` and returns its output. Throws with its messages if it fails. */
  docker(...args: readonly string[]): Promise<string>;
  /** Ends the daemon and starts it in the given network. */
  restart(network: Network): Promise<void>;
}

/**
 * Network of the daemon. A build needs the machine's, for packages. Containers run in a network of their own, where
 * the rules of the machine do not apply to their bridges.
 */
export type Network = "machine" | "own";

/** Reason why this machine cannot run Docker. */
export interface NoDocker {
  readonly whyNot: string;
  /** True if a program is missing, which a run with CI=true must have. */
  readonly isMissing: boolean;
}

/** Longest start of the daemon on a busy machine, in milliseconds. */
const startLimitMs = 90_000;

const folder = join(homedir(), ".cache/kpng/docker");

/** Starts a daemon. Waits while another test run on this machine has one. */
export async function startDocker(network: Network): Promise<DockerDaemon | NoDocker> {
  const dockerd = findProgram("dockerd");
  if (process.getuid?.() !== 0) return { whyNot: "Docker's daemon needs root", isMissing: false };
  for (const name of ["dockerd", "docker-compose", "apt-get"])
    if (findProgram(name) === undefined) return { whyNot: `${name} is not installed`, isMissing: true };
  mkdirSync(folder, { recursive: true });
  const held = Promise.withResolvers<void>();
  const taken = Promise.withResolvers<void>();
  void withLock(join(folder, "lock"), () => {
    taken.resolve();
    return held.promise;
  });
  await taken.promise;
  // The path of a socket has at most 107 characters.
  const work = mkdtempSync(join(tmpdir(), "kpng-docker-"));
  const socket = join(work, "docker.sock");
  // The client of the same package as the daemon: another one may lack BuildKit.
  const client = join(dirname(dirname(dockerd ?? "")), "bin/docker");
  const env = { ...process.env, DOCKER_HOST: `unix://${socket}`, DOCKER_BUILDKIT: "1" };
  const docker = async (...args: readonly string[]): Promise<string> => {
    const { stdout } = await run(existsSync(client) ? client : "docker", args, { env, maxBuffer: 2 ** 26 });
    return stdout.trim();
  };
  const stop = async (): Promise<void> => {
    await stopDaemon(work);
    rmSync(work, { recursive: true, force: true });
    held.resolve();
  };
  try {
    await startDaemon(network, work, socket, docker);
  } catch (error) {
    await stop();
    const [last = ""] = reasonOf(error).trim().split("\n").slice(-1);
    return { whyNot: `Docker's daemon does not start: ${last}`, isMissing: false };
  }
  return {
    env,
    docker,
    restart: async (next) => {
      await stopDaemon(work);
      await startDaemon(next, work, socket, docker);
    },
    [Symbol.asyncDispose]: stop,
  };
}

/** Starts a daemon. Throws the reason where this machine cannot run Docker. */
export async function needDocker(network: Network): Promise<DockerDaemon> {
  const docker = await startDocker(network);
  if ("whyNot" in docker) throw new Error(docker.whyNot);
  return docker;
}

async function startDaemon(
  network: Network,
  work: string,
  socket: string,
  docker: DockerDaemon["docker"],
): Promise<void> {
  // A daemon of a killed test run.
  await stopDaemon(work);
  const options = [
    ...["--data-root", join(folder, "data"), "--exec-root", join(work, "exec"), "--host", `unix://${socket}`],
    ...["--pidfile", pidfile, "--log-level=error"],
    // Not those of another daemon on this machine, with which it may share containerd.
    ...["--containerd-namespace=kpng-test", "--containerd-plugins-namespace=kpng-test-plugins"],
    ...["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"],
  ];
  const daemon = ["dockerd", ...options];
  const inOwn = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", ...daemon];
  const [command = "", ...args] = network === "own" ? inOwn : daemon;
  const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log = `${log}${text}`.slice(-4_000)));
  child.once("error", (error) => (log += String(error)));
  const isUp = async (): Promise<boolean> => {
    if (child.exitCode !== null) return true;
    await docker("version");
    return true;
  };
  await until("the daemon answers", isUp, startLimitMs, () => log);
  if (child.exitCode !== null) throw new Error(log);
  for (const id of (await docker("ps", "--all", "--quiet")).split("\n").filter((line) => line !== ""))
    await docker("rm", "--force", "--volumes", id);
  for (const kind of ["network", "volume"]) await docker(kind, "prune", "--force");
  // Otherwise the cache would grow with each run.
  for (const kind of ["image", "builder"]) await docker(kind, "prune", "--force", "--all", "--filter=until=168h");
}

const pidfile = join(folder, "pid");

/** Ends the daemon that the file of its process id names, and with it every container. */
async function stopDaemon(work: string): Promise<void> {
  if (!existsSync(pidfile)) return;
  const pid = Number(readFileSync(pidfile, "utf8"));
  const isRunning = (): boolean =>
    existsSync(`/proc/${pid}/cmdline`) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(folder);
  if (isRunning()) process.kill(pid, "SIGTERM");
  await until("the daemon ends", () => !isRunning(), 60_000);
  rmSync(pidfile, { force: true });
  rmSync(join(work, "docker.sock"), { force: true });
}

/** Returns the path of a program on the PATH. */
export function findProgram(name: string): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.map((each) => join(each, name)).find((path) => existsSync(path));
}
