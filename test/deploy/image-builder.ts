import { execFile, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { fetchNode } from "../../deploy/release/executables.ts";
import { findBinaries } from "../cluster/binaries.ts";
import { until } from "../cluster/until.ts";
import { findProgram } from "./docker-daemon.ts";
import { fillBase } from "./docker-images.ts";

const run = promisify(execFile);

/** A BuildKit daemon of this test alone, and an image for several architectures to build from, without a registry. */
export interface ImageBuilder extends AsyncDisposable {
  /** Environment in which `npm run release -- … --images` uses it. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * Starts a builder with its files in `folder`. Needs root, `docker` and runc.
 *
 * *Cost:* minutes the first time, for BuildKit and buildx from their Go modules.
 *
 * Errors: throws the reason why this machine has no builder.
 */
export async function startImageBuilder(folder: string): Promise<ImageBuilder> {
  if (process.getuid?.() !== 0) throw new Error("BuildKit needs root");
  for (const name of ["docker", "runc", "apt-get"])
    if (findProgram(name) === undefined) throw new Error(`${name} is not installed`);
  const found = await findBinaries(["buildkitd", "buildx"]);
  if (found.kind === "missing") throw new Error(found.reason);
  const plugins = join(folder, "docker/cli-plugins");
  mkdirSync(plugins, { recursive: true });
  symlinkSync(found.paths.buildx, join(plugins, "docker-buildx"));
  const env = { ...process.env, DOCKER_CONFIG: join(folder, "docker") };
  const address = `unix://${join(folder, "buildkitd.sock")}`;
  const worker = ["--containerd-worker=false", "--oci-worker=true", "--oci-worker-net=host"];
  const daemon = spawn(found.paths.buildkitd, ["--root", join(folder, "state"), "--addr", address, ...worker], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  daemon.stderr.setEncoding("utf8").on("data", (text: string) => (log = `${log}${text}`.slice(-4_000)));
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  const stop = async (): Promise<void> => {
    daemon.kill();
    await ended;
  };
  try {
    await until(
      "buildkitd answers",
      () => existsSync(join(folder, "buildkitd.sock")),
      30_000,
      () => log,
    );
    await run("docker", ["buildx", "create", "--use", "--driver=remote", address], { env });
    const image = await makeBaseImage(join(folder, "base"), env);
    return { env: { ...env, NODE_IMAGE: `oci-layout://${image}:latest` }, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Makes an image for both architectures, which the Dockerfile takes in place of Node.js's, and returns its folder. */
async function makeBaseImage(folder: string, env: NodeJS.ProcessEnv): Promise<string> {
  const [amd64, arm64] = [join(folder, "amd64"), join(folder, "arm64")];
  const environment = fillBase(amd64);
  // The Debian release of the Dockerfile's default, whichever this machine has.
  await run("sh", [
    "-c",
    'find "$0" -name "*.list" -o -name "*.sources" | xargs sed -i s/bookworm/trixie/g',
    join(amd64, "etc/apt"),
  ]);
  // Builds run on this machine; from the other architecture they take this program.
  mkdirSync(join(arm64, "usr/local/bin"), { recursive: true });
  cpSync(join(fetchNode("arm64"), "bin/node"), join(arm64, "usr/local/bin/node"));
  writeFileSync(
    join(folder, "Dockerfile"),
    ["FROM scratch", "ARG TARGETARCH", "COPY $" + "{TARGETARCH}/ /", ...environment, ""].join("\n"),
  );
  const image = join(folder, "image");
  const output = `--output=type=oci,tar=false,dest=${image}`;
  await run("docker", ["buildx", "build", "--platform=linux/amd64,linux/arm64", output, folder], { env });
  rmSync(amd64, { recursive: true });
  return image;
}
