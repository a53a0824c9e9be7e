import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { isExecutable } from "./child.ts";
import { testCache, withLock } from "./test-cache.ts";

/** Paths of the programs, or the reason why they are not available. */
type Binaries<P extends Program> =
  | { readonly kind: "found"; readonly paths: Readonly<Record<P, string>> }
  | { readonly kind: "missing"; readonly reason: string };

/**
 * Finds the programs in the folder of KUBEBUILDER_ASSETS, otherwise in the cache outside the repository, and otherwise
 * builds them there. A build needs Go 1.26 or newer, and takes some minutes the first time.
 *
 * Errors: none; unavailable programs give `missing` with the reason.
 */
export async function findBinaries<const P extends Program>(programs: readonly P[]): Promise<Binaries<P>> {
  const assets = process.env.KUBEBUILDER_ASSETS;
  const given = (program: P): string => join(assets ?? "", program);
  const isGiven = (program: P): boolean => assets !== undefined && isExecutable(given(program));
  try {
    await buildMissing(programs.filter((program) => !isGiven(program)));
    const paths = programs.map((program) => [program, isGiven(program) ? given(program) : pathOf(program)]);
    return { kind: "found", paths: Object.fromEntries(paths) };
  } catch (error) {
    return { kind: "missing", reason: reasonOf(error) };
  }
}

/** Where a program comes from. */
interface Source {
  /** Folder of its Go module, relative to this file. */
  readonly module: string;
  /** Command of Go and its options. Default: `build`. */
  readonly command?: readonly string[];
  readonly targets: readonly string[];
}

const controlPlane = (program: string): Source => ({ module: "control-plane", targets: [`./${program}`] });
/** A program of a whole cluster (test/e2e). */
const ofCluster = (target: string): Source => ({ module: "../e2e/programs/kubernetes", targets: [target] });
/** A tool that builds images. */
const ofImages = (target: string): Source => ({ module: "../deploy/buildkit", targets: [target] });

const sources = {
  etcd: { module: "etcd", targets: ["."] },
  "kube-apiserver": controlPlane("kube-apiserver"),
  "kube-controller-manager": controlPlane("kube-controller-manager"),
  "kube-proxy": controlPlane("kube-proxy"),
  kubelet: ofCluster("./kubelet"),
  "kube-scheduler": ofCluster("./kube-scheduler"),
  kubectl: ofCluster("./kubectl"),
  pause: ofCluster("./pause"),
  agnhost: ofCluster("k8s.io/kubernetes/test/images/agnhost"),
  "regression-issue-74839": ofCluster("k8s.io/kubernetes/test/images/regression-issue-74839"),
  ginkgo: ofCluster("github.com/onsi/ginkgo/v2/ginkgo"),
  "e2e.test": { ...ofCluster("./e2e"), command: ["test", "-c"] },
  coredns: { module: "../e2e/programs/coredns", targets: ["."] },
  grpcurl: { module: "grpcurl", targets: ["github.com/fullstorydev/grpcurl/cmd/grpcurl"] },
  helm: { module: "../manifests/helm", targets: ["helm.sh/helm/v4/cmd/helm"] },
  buildkitd: ofImages("github.com/moby/buildkit/cmd/buildkitd"),
  buildx: ofImages("github.com/docker/buildx/cmd/buildx"),
  // Builds only the service discovery that our configuration uses.
  promtool: {
    module: "promtool",
    targets: ["-tags", "remove_all_sd,enable_kubernetes_sd", "github.com/prometheus/prometheus/cmd/promtool"],
  },
} satisfies Readonly<Record<string, Source>>;

/** Program that is built from a Go module. */
export type Program = keyof typeof sources;

const run = promisify(execFile);

/**
 * Builds the programs that are not in the cache.
 *
 * *Cost:* per program a few seconds with a warm Go build cache, two to three minutes without. Only one build runs at a
 * time: a second test process waits for the first one.
 *
 * Errors: a failed build, with the output of Go.
 */
async function buildMissing(programs: readonly Program[]): Promise<void> {
  const missing = (): readonly Program[] => programs.filter((program) => !isBuilt(program));
  if (missing().length === 0) return;
  mkdirSync(cacheRoot(), { recursive: true });
  await withLock(join(cacheRoot(), "build.lock"), async () => {
    for (const program of missing()) await build(program, cacheFolder(program));
  });
}

/** Returns whether the program is in the cache, so that `buildMissing` takes no time. */
export function isBuilt(program: Program): boolean {
  return isExecutable(pathOf(program));
}

/** Returns the folder of the Go module that a program is built from. */
export function moduleFolder(program: Program): string {
  return join(import.meta.dirname, sources[program].module);
}

async function build(program: Program, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const startedMs = performance.now();
  say(`building ${program} into ${folder} (minutes the first time, seconds with a warm Go build cache)`);
  const { module, command = ["build"], targets }: Source = sources[program];
  // Program under a temporary name and renamed, so that an interrupted build leaves no program.
  const unfinished = join(folder, `.${program}.${process.pid}`);
  try {
    await run("go", [...command, `-ldflags=-s -w${versionFlags(program)}`, "-o", unfinished, ...targets], {
      cwd: join(import.meta.dirname, module),
      // Without C a program is static, so that it runs in images too. All do without, because packages that are
      // compiled with and without C cannot be shared.
      env: { ...process.env, GOFLAGS: "-mod=readonly -buildvcs=false", CGO_ENABLED: "0" },
      maxBuffer: 16 << 20,
    });
    renameSync(unfinished, join(folder, program));
  } catch (cause) {
    rmSync(unfinished, { force: true });
    const remedy = "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS";
    throw new Error(`cannot build ${program} from its Go module (${reasonOf(cause)}): ${remedy}`, { cause });
  }
  say(`built ${program} in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
}

/** Flags of Go's linker that give the API server its version, for which Helm asks. */
function versionFlags(program: Program): string {
  if (program !== "kube-apiserver") return "";
  const modules = readFileSync(join(moduleFolder(program), "go.mod"), "utf8");
  const [, version = "", major, minor] = /^\s*k8s\.io\/kubernetes (v(\d+)\.(\d+)\.\d+)$/m.exec(modules) ?? [];
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor };
  const set = Object.entries(values).map(([name, value]) => ` -X k8s.io/component-base/version.${name}=${value}`);
  return set.join("");
}

function cacheRoot(): string {
  return testCache("control-plane");
}

function pathOf(program: Program): string {
  return join(cacheFolder(program), program);
}

/** Returns the cache folder, one per set of sources: a changed version is built separately. */
function cacheFolder(program: Program): string {
  const { module } = sources[program];
  const modules = module === "etcd" || module === "control-plane" ? "{control-plane,etcd}" : module;
  const hash = createHash("sha256").update(versionFlags(program));
  const files = globSync([`${modules}/go.{mod,sum}`, `${modules}/**/{main,*_test}.go`], { cwd: import.meta.dirname });
  for (const file of files.toSorted()) hash.update(file).update(readFileSync(join(import.meta.dirname, file)));
  return join(cacheRoot(), hash.digest("hex").slice(0, 16));
}

function say(text: string): void {
  process.stderr.write(`test/cluster: ${text}\n`);
}
