import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { isExecutable } from "./executable.ts";
import { withLock } from "./lock.ts";

type Built = "etcd" | "kube-apiserver" | "kube-controller-manager" | "kube-proxy" | "grpcurl" | "promtool";

const run = promisify(execFile);

/**
 * Returns the paths of the programs, and builds those that are not in the cache.
 *
 * *Cost:* per program a few seconds with a warm Go build cache, two to three minutes without. Only one build runs at a
 * time: a second test process waits for the first one.
 *
 * Errors: Go missing or older than 1.26; a failed build, with the output of Go.
 */
export async function buildMissing(programs: readonly Built[]): Promise<Record<string, string>> {
  const pathOf = (program: Built): string => join(cacheFolder(program), program);
  const paths = Object.fromEntries(programs.map((program) => [program, pathOf(program)]));
  const missing = (): readonly Built[] => programs.filter((program) => !isExecutable(pathOf(program)));
  if (missing().length === 0) return paths;
  await checkGo();
  mkdirSync(cacheRoot(), { recursive: true });
  await withLock(join(cacheRoot(), "build.lock"), async () => {
    for (const program of missing()) await build(program, cacheFolder(program));
  });
  return paths;
}

async function build(program: Built, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const startedMs = performance.now();
  say(`building ${program} into ${folder} (minutes the first time, seconds with a warm Go build cache)`);
  const [module, ...targets] = sourceOf(program);
  // Built under a temporary name and renamed, so that an interrupted build leaves no program.
  const unfinished = join(folder, `.${program}.${process.pid}`);
  try {
    await run("go", ["build", "-o", unfinished, ...targets], {
      cwd: join(import.meta.dirname, module),
      env: { ...process.env, GOFLAGS: "-mod=readonly -buildvcs=false" },
      maxBuffer: 16 << 20,
    });
    renameSync(unfinished, join(folder, program));
  } catch (cause) {
    rmSync(unfinished, { force: true });
    throw new Error(`cannot build ${program} from its Go module`, { cause });
  }
  say(`built ${program} in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
}

/** Returns the folder of the Go module, next to this file, and the arguments of the build. */
function sourceOf(program: Built): readonly [string, ...string[]] {
  switch (program) {
    case "etcd":
      return ["etcd", "."];
    case "grpcurl":
      return ["grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl"];
    case "promtool": {
      // Builds only the service discovery that our configuration uses.
      const tags = "remove_all_sd,enable_kubernetes_sd";
      return ["promtool", "-tags", tags, "github.com/prometheus/prometheus/cmd/promtool"];
    }
    default:
      return ["control-plane", `./${program}`];
  }
}

async function checkGo(): Promise<void> {
  let version: string;
  try {
    version = (await run("go", ["env", "GOVERSION"], { cwd: join(import.meta.dirname, "etcd") })).stdout.trim();
  } catch (cause) {
    throw new Error(
      "Go not found, which builds the control plane: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS",
      {
        cause,
      },
    );
  }
  const [, major = "0", minor = "0"] = /^go(\d+)\.(\d+)/.exec(version) ?? [];
  if (Number(major) < 1 || (Number(major) === 1 && Number(minor) < 26)) {
    throw new Error(
      `${version} is too old to build the control plane: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS`,
    );
  }
}

function cacheRoot(): string {
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "kpng", "control-plane");
}

/** Returns the cache folder, one per set of sources: a changed version is built separately. */
function cacheFolder(program: Built): string {
  const [module] = sourceOf(program);
  const modules = module === "etcd" || module === "control-plane" ? "{control-plane,etcd}" : module;
  const hash = createHash("sha256");
  const sources = globSync([`${modules}/go.{mod,sum}`, `${modules}/**/main.go`], { cwd: import.meta.dirname });
  for (const source of sources.toSorted()) hash.update(source).update(readFileSync(join(import.meta.dirname, source)));
  return join(cacheRoot(), hash.digest("hex").slice(0, 16));
}

function say(text: string): void {
  process.stderr.write(`test/cluster: ${text}\n`);
}
