import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { until } from "../cluster/until.ts";
import { type DockerDaemon, type NoDocker, startDocker } from "./docker-daemon.ts";
import { buildImage } from "./docker-images.ts";

// Builds the images with Docker and runs docker-compose.yaml on them. No image comes from a registry: docker-images.ts
// makes the base.

const run = promisify(execFile);
const targets = ["watcher", "json", "callout", "iptables", "nft", "ipvs", "ebpf", "userspace"] as const;

/** Time limits on a busy machine without anything in its caches, in milliseconds. */
const buildLimitMs = 900_000;
const upLimitMs = 300_000;

let docker: DockerDaemon | NoDocker;

beforeAll(async () => {
  docker = await startDocker("machine");
  if ("whyNot" in docker) return;
  for (const target of targets) await buildImage(docker, target, `kpng-${target}`);
  await docker.restart("own");
}, buildLimitMs);

afterAll(async () => {
  if (docker !== undefined && !("whyNot" in docker)) await docker[Symbol.asyncDispose]();
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

test("the nodes of docker-compose.yaml become healthy with few rights, and carry requests to each pod", {
  timeout: upLimitMs,
}, async (context) => {
  const { docker: call, env } = needDocker(context);
  const compose = async (...args: readonly string[]): Promise<string> => {
    const { stdout } = await run("docker-compose", ["--project-name", "kpng-test", ...args], {
      env,
      maxBuffer: 2 ** 26,
    });
    return stdout;
  };
  const names = ["watcher", "nft", "iptables", "userspace", "callout", "json"];
  try {
    // Without the collector and the trace viewer, whose images come from a registry.
    await compose("up", "--detach", "--no-build", ...names, "pod-1", "pod-2", "pod-3", "client");
    const containers = await Promise.all(names.map(async (name) => (await compose("ps", "--quiet", name)).trim()));
    for (const id of containers) {
      const { HostConfig } = JSON.parse(await call("inspect", "--format", "{{json .}}", id));
      expect(HostConfig).toMatchObject({ Privileged: false, ReadonlyRootfs: true, CapDrop: ["ALL"] });
      expect(HostConfig.Memory * HostConfig.PidsLimit).toBeGreaterThan(0);
    }
    expect(await compose("port", "watcher", "12090")).toBe("127.0.0.1:12090\n");
    const shown = await compose("exec", "-T", "client", "node", "/compose/show.ts").catch(
      // It ends with an error because it asks the viewer for the trace.
      ({ stdout, stderr }: { readonly stdout: string; readonly stderr: string }) => `${stdout}\n${stderr}`,
    );
    for (const url of ["nft:30080", "iptables:30080", "userspace:30080", "198.51.100.10:8080"])
      expect(shown).toMatch(new RegExp(` http://${url}/ .*pod-1 \\d+, pod-2 \\d+, pod-3 \\d+$`, "m"));
    const areHealthy = async (): Promise<boolean> =>
      (await call("inspect", "--format", "{{.State.Health.Status}}", ...containers))
        .split("\n")
        .every((status) => status === "healthy");
    await until("all containers are healthy", areHealthy, 120_000);
  } catch (error) {
    throw new Error(`${String(error)}\n${await compose("logs", "--no-color", "--tail=15")}`, { cause: error });
  } finally {
    await compose("down", "--volumes", "--timeout=5");
  }
});

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
