import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { until } from "../cluster/until.ts";
import { cgroupMount, whyNoBpf } from "../kernel/laboratory/bpf.ts";
import { type DockerDaemon, type NoDocker, startDocker } from "./docker-daemon.ts";
import { buildImage } from "./docker-images.ts";
import type { ImageFigures } from "./process-figures.ts";
import { runImages } from "./running-images.ts";

// Builds the images with Docker and runs docker-compose.yaml on them. No image comes from a registry: docker-images.ts
// makes the base, and collector.ts and trace-viewer.ts stand for the collector and the trace viewer.

const run = promisify(execFile);
const targets = ["watcher", "json", "callout", "iptables", "nft", "ipvs", "ebpf", "userspace"] as const;

/** Time limits on a busy machine without anything in its caches, in milliseconds. */
const buildLimitMs = 900_000;
const upLimitMs = 300_000;

let docker: DockerDaemon | NoDocker;
let folder = "";

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "kpng-containers-"));
  docker = await startDocker("machine");
  if ("whyNot" in docker) return;
  for (const target of targets) await buildImage(docker, target, `kpng-${target}`);
  await docker.restart("own");
}, buildLimitMs);

afterAll(async () => {
  if (docker !== undefined && !("whyNot" in docker)) await docker[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
}, upLimitMs);

describe("images that Docker builds", () => {
  test.for(targets)(
    "%s says what it is, has a user, and starts on a read-only file system",
    async (target, context) => {
      const { docker: call } = needDocker(context);
      const config = JSON.parse(await call("inspect", "--format", "{{json .Config}}", `kpng-${target}`));
      expect(config.Labels).toMatchObject({
        "org.opencontainers.image.title": `kpng-${target}`,
        "org.opencontainers.image.version": packageJson.version,
      });
      expect(config.User).toBe(["watcher", "json"].includes(target) ? "65532:65532" : "0:65532");
      const restrictions = ["--rm", "--network=none", "--read-only", "--cap-drop=ALL"];
      expect(await call("run", ...restrictions, `kpng-${target}`, "--version")).toContain(packageJson.version);
    },
  );

  test.for([
    {
      target: "iptables",
      programs: ["iptables-save", "iptables-legacy-restore", "ip6tables-save", "conntrack"],
    },
    { target: "nft", programs: ["nft", "conntrack"] },
    {
      target: "ipvs",
      programs: ["ipvsadm", "ipset", "ip", "iptables-save", "iptables-restore", "ip6tables-restore", "conntrack"],
    },
    { target: "ebpf", programs: ["nft", "conntrack"] },
    { target: "userspace", programs: ["nft", "ip", "conntrack"] },
    { target: "callout", programs: ["sh", "iptables-restore", "conntrack"] },
  ])("$target contains the programs that it runs, with their libraries", async ({ target, programs }, context) => {
    const { docker: call } = needDocker(context);
    // Prints the programs that are missing or end as the dynamic linker ends a program that lacks a library.
    const script = `for (const name of ${JSON.stringify(programs)}) {
      const { error, status } = require("node:child_process").spawnSync(name, ["--version"]);
      if (error || status === 127) console.log(name, error ?? status);
    }`;
    const command = ["--entrypoint=node", `kpng-${target}`, "--eval", script];
    expect(await call("run", "--rm", "--network=none", "--cap-add=NET_ADMIN", ...command)).toBe("");
  });

  test("ipvs says what the kernel lacks, or serves", async (context) => {
    const { docker: call } = needDocker(context);
    const rights = ["--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=NET_RAW", "--network=none", "--read-only"];
    const input = `--volume=${resolve("deploy/compose/manifests")}:/manifests:ro`;
    const command = ["file", "--input=/manifests", "to-local", "to-ipvs", "--node-name=ipvs", "--once", "--dry-run"];
    const ended = call("run", "--rm", ...rights, input, "--entrypoint=kpng", "kpng-ipvs", ...command);
    if (existsSync("/proc/net/ip_vs")) expect(await ended).toContain("-A -t 10.96.0.80:80");
    else await expect(ended).rejects.toThrow(/IPVS_UNAVAILABLE.*IPVS \(module ip_vs\)/);
  });

  test("ebpf says what is missing, or serves", async (context) => {
    const { docker: call } = needDocker(context);
    const whyNot = await whyNoBpf();
    // Never the machine's own: programs there would serve every process.
    const cgroup = join(cgroupMount() ?? folder, `kpng-test-image-${process.pid}`);
    mkdirSync(cgroup);
    const once = (...capabilities: readonly string[]): Promise<string> => {
      const rights = ["--cap-drop=ALL", ...capabilities.map((name) => `--cap-add=${name}`), "--network=none"];
      const mounts = [
        "--mount=type=volume,target=/sys/fs/bpf,volume-opt=type=bpf,volume-opt=device=bpf",
        `--volume=${cgroup}:/host/cgroup:ro`,
        `--volume=${resolve("deploy/compose/manifests")}:/manifests:ro`,
      ];
      const options = ["--node-name=ebpf", "--once", "--state-dir=none", "--cgroup=/host/cgroup"];
      const command = ["file", "--input=/manifests", "to-local", "to-ebpf", ...options];
      return call("run", "--rm", "--read-only", ...rights, ...mounts, "--entrypoint=kpng", "kpng-ebpf", ...command);
    };
    try {
      await expect(once("NET_ADMIN")).rejects.toThrow(/BPF_UNSUPPORTED|unknown filesystem|no such device/);
      // SYS_ADMIN contains BPF and PERFMON, whose names Docker 20.10 does not know.
      const ended = once("NET_ADMIN", "SYS_ADMIN");
      if (whyNot === undefined) await ended;
      else await expect(ended).rejects.toThrow(/BPF_UNSUPPORTED|PROGRAM_REJECTED|CGROUP_UNKNOWN|no such device/);
    } finally {
      rmdirSync(cgroup);
    }
  });

  test.for(["watcher", "json", "iptables", "nft", "ipvs", "ebpf", "userspace"])(
    "%s contains neither a shell nor a package manager",
    async (target, context) => {
      const { docker: call } = needDocker(context);
      const script = `const { existsSync } = require("node:fs");
      console.log(["/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/apt", "/usr/bin/dpkg", "/usr/local/bin/npm"].filter((path) => existsSync(path)).join())`;
      expect(await call("run", "--rm", "--network=none", "--entrypoint=node", `kpng-${target}`, "--eval", script)).toBe(
        "",
      );
    },
  );

  test("a second build from nothing makes the same files", { timeout: buildLimitMs }, async (context) => {
    const daemon = needDocker(context);
    await daemon.restart("machine");
    await daemon.docker("builder", "prune", "--force", "--all");
    await buildImage(daemon, "nft", "kpng-nft:again");
    await daemon.restart("own");
    const [built, again] = [
      await listFiles(daemon.docker, "kpng-nft"),
      await listFiles(daemon.docker, "kpng-nft:again"),
    ];
    expect(built.length).toBeGreaterThan(200);
    expect(again).toEqual(built);
  });

  test("an image lists its packages where scanners look for them", async (context) => {
    const { docker: call } = needDocker(context);
    const script = `const { readdirSync, readFileSync } = require("node:fs");
      const npm = JSON.parse(readFileSync("/usr/local/lib/kpng/npm.spdx.json", "utf8")).packages.map(({ name }) => name);
      console.log(JSON.stringify([...readdirSync("/var/lib/dpkg/status.d"), ...npm]));`;
    const run = ["run", "--rm", "--network=none", "--entrypoint=node", "kpng-nft", "--eval", script];
    expect(JSON.parse(await call(...run))).toEqual(
      expect.arrayContaining(["libc6", "nftables", "koffi", "@grpc/grpc-js"]),
    );
  });
});

describe("a running container", () => {
  /** Memory of an idle process, in MB; backends without traces, which add 3 to 6 MB. */
  const limitsMB = { watcher: 120, backend: 90 };
  const whyNot = new Map<string, string>();
  let traced: ReadonlyMap<string, ImageFigures> = new Map();
  let untraced: ReadonlyMap<string, ImageFigures> = new Map();

  beforeAll(async () => {
    if ("whyNot" in docker) return;
    const reason = await whyNoBpf();
    if (reason !== undefined) whyNot.set("ebpf", reason);
    if (!existsSync("/proc/net/ip_vs")) whyNot.set("ipvs", "the kernel has no IPVS");
    const backends = targets.filter((name) => name !== "watcher").filter((name) => !whyNot.has(name));
    traced = await runImages(docker.docker, backends, "with traces");
    untraced = await runImages(docker.docker, backends, "without traces");
  }, upLimitMs);

  test.for(targets)("%s exports a trace, and uses little memory when idle", async (image, context) => {
    needDocker(context);
    const reason = whyNot.get(image);
    if (reason !== undefined) return context.skip(reason);
    const own = untraced.get(image) ?? expect.fail("it did not run");
    const withTraces = traced.get(image) ?? expect.fail("it did not run");
    await report(image, own, withTraces.idleMB);
    if (image === "watcher") expect(withTraces.idleMB).toBeLessThanOrEqual(limitsMB.watcher);
    else expect(own.idleMB).toBeLessThanOrEqual(limitsMB.backend);
  });
});

test("docker-compose.yaml shows traffic through each backend, and the trace of a change", {
  timeout: upLimitMs,
}, async (context) => {
  const { docker: call, env } = needDocker(context);
  const override = writeOverride();
  const compose = async (...args: readonly string[]): Promise<string> => {
    const files = ["--project-name", "kpng-test", "--file", "docker-compose.yaml", "--file", override];
    const { stdout } = await run("docker-compose", [...files, ...args], { env, maxBuffer: 2 ** 26 });
    return stdout;
  };
  const programs = ["watcher", "nft", "iptables", "userspace", "callout", "json"];
  const names = [...programs, "collector", "viewer"];
  try {
    await compose("up", "--detach", "--no-build");
    const containers = await Promise.all(names.map(async (name) => (await compose("ps", "--quiet", name)).trim()));
    for (const id of containers) {
      const { HostConfig } = JSON.parse(await call("inspect", "--format", "{{json .}}", id));
      expect(HostConfig).toMatchObject({ Privileged: false, ReadonlyRootfs: true, CapDrop: ["ALL"] });
      expect(HostConfig.Memory * HostConfig.PidsLimit).toBeGreaterThan(0);
    }
    const shown = await compose("exec", "-T", "client", "node", "/compose/show.ts");
    for (const name of ["nft", "iptables", "userspace", "callout"])
      expect(shown).toMatch(new RegExp(`^${name} .*pod-1 \\d+, pod-2 \\d+, pod-3 \\d+$`, "m"));
    // All in one trace, which came by OTLP.
    expect(shown).toMatch(/change +kpng-watcher$/m);
    for (const name of programs.slice(1)) expect(shown).toMatch(new RegExp(`backend\\.commit +kpng-${name}$`, "m"));
    const areHealthy = async (): Promise<boolean> =>
      (await call("inspect", "--format", "{{.State.Health.Status}}", ...containers))
        .split("\n")
        .every((status) => status === "healthy");
    await until("all containers are healthy", areHealthy, 120_000);
    // The commands of decision 0077, which Docker ran. Where nothing answers, the collector's must fail.
    const checks = await Promise.all(containers.map((id) => call("inspect", "--format", "{{json .Config}}", id)));
    const commands = checks.map((config): readonly string[] => JSON.parse(config).Healthcheck.Test.slice(1));
    const validate = ["/otelcol", "validate", "--config=/compose/collector.yaml"];
    expect(commands.slice(-2)).toEqual([
      [...validate, "--config=http://127.0.0.1:13133/"],
      ["wget", "--quiet", "--spider", "http://127.0.0.1:14269/"],
    ]);
    const unanswered = compose("exec", "-T", "collector", ...validate, "--config=http://127.0.0.1:13134/");
    await expect(unanswered).rejects.toThrow();
  } catch (error) {
    throw new Error(`${String(error)}\n${await compose("logs", "--no-color", "--tail=15")}`, { cause: error });
  } finally {
    await compose("down", "--volumes", "--timeout=5");
  }
});

/** Prints what docs/guides/images.md says of an image. */
async function report(image: string, { startCpuS, idleMB }: ImageFigures, tracedMB: number): Promise<void> {
  const { docker: call } = docker as DockerDaemon;
  const sizeMB = Number(await call("inspect", "--format", "{{.Size}}", `kpng-${image}`)) / 1e6;
  const [size, start] = [sizeMB.toFixed(0), startCpuS.toFixed(1)];
  const [idle, traced] = [idleMB.toFixed(0), tracedMB.toFixed(0)];
  process.stdout.write(
    `kpng-${image}: ${size} MB, start ${start} s of CPU time, idle ${idle} MB, with traces ${traced} MB\n`,
  );
}

/** Returns Docker, or skips the test. With CI=true, a program that is missing is a failure. */
function needDocker(context: TestContext): DockerDaemon {
  if (!("whyNot" in docker)) return docker;
  if (docker.isMissing && process.env.CI === "true") expect.fail(docker.whyNot);
  return context.skip(docker.whyNot);
}

/** Returns one line for each file of an image: mode, owner, group, path, and digest or target. */
async function listFiles(call: DockerDaemon["docker"], image: string): Promise<readonly string[]> {
  const script = `const { lstatSync, readFileSync, readlinkSync, readdirSync } = require("node:fs");
    const { createHash } = require("node:crypto");
    const skipped = ["/dev", "/proc", "/sys", "/.dockerenv", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab"];
    const list = (path) => {
      if (skipped.includes(path)) return;
      const stat = lstatSync(path);
      const content = stat.isFile() ? createHash("sha1").update(readFileSync(path)).digest("hex") : stat.isSymbolicLink() ? readlinkSync(path) : "";
      console.log(stat.mode.toString(8), stat.uid, stat.gid, path, content);
      if (stat.isDirectory()) for (const name of readdirSync(path)) list((path === "/" ? "" : path) + "/" + name);
    };
    list("/");`;
  return (await call("run", "--rm", "--network=none", "--user=0", "--entrypoint=node", image, "--eval", script))
    .split("\n")
    .toSorted();
}

/**
 * Writes the file that replaces the collector by collector.ts and the viewer by trace-viewer.ts, bundled. Health checks
 * stay those of docker-compose.yaml: the collector is the program /otelcol, and `wget` is Busybox's, as in Jaeger's
 * image, which is based on Alpine Linux.
 */
function writeOverride(): string {
  const [viewer, otelcol] = [join(folder, "viewer.mjs"), join(folder, "otelcol")];
  const makeRequire =
    'import { createRequire as makeRequire } from "node:module"; const require = makeRequire(import.meta.url);';
  const bundle = (source: string, outfile: string, format: "esm" | "cjs", js: string): void => {
    buildSync({ bundle: true, platform: "node", format, banner: { js }, entryPoints: [source], outfile });
  };
  bundle("test/deploy/trace-viewer.ts", viewer, "esm", makeRequire);
  bundle("test/deploy/collector.ts", otelcol, "cjs", "#!/usr/local/bin/node");
  chmodSync(otelcol, 0o755);
  const file = join(folder, "override.yaml");
  const standIn = (entrypoint: readonly string[], ...volumes: readonly string[]): object => {
    return { image: "kpng-watcher", entrypoint, init: true, volumes };
  };
  const services = {
    collector: standIn(["/otelcol"], `${otelcol}:/otelcol:ro`),
    viewer: standIn(["node", "/viewer.mjs"], `${viewer}:/viewer.mjs:ro`, "/bin/busybox:/usr/bin/wget:ro"),
  };
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({ services }));
  return file;
}
