import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { assertNever } from "@kpng/model/narrowing.ts";
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

/** Program that is built from a Go module: of the control plane, of a whole cluster (test/e2e), or a tool of tests. */
export type Program = ControlPlaneProgram | ClusterProgram | "grpcurl" | "promtool" | "helm" | "buildkitd" | "buildx";
type ControlPlaneProgram = "etcd" | "kube-apiserver" | "kube-controller-manager" | "kube-proxy";
type ClusterProgram =
  | "kubelet"
  | "kube-scheduler"
  | "kubectl"
  | "pause"
  | "agnhost"
  | "regression-issue-74839"
  | "coredns"
  | "e2e.test"
  | "ginkgo";

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
  return join(import.meta.dirname, sourceOf(program).module);
}

async function build(program: Program, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const startedMs = performance.now();
  say(`building ${program} into ${folder} (minutes the first time, seconds with a warm Go build cache)`);
  const { module, command = ["build"], targets } = sourceOf(program);
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

/** Where a program comes from. */
interface Source {
  /** Folder of its Go module, relative to this file. */
  readonly module: string;
  /** Command of Go and its options. Default: `build`. */
  readonly command?: readonly string[];
  readonly targets: readonly string[];
}

function sourceOf(program: Program): Source {
  switch (program) {
    case "etcd":
      return { module: "etcd", targets: ["."] };
    case "grpcurl":
      return { module: "grpcurl", targets: ["github.com/fullstorydev/grpcurl/cmd/grpcurl"] };
    case "helm":
      return { module: "../manifests/helm", targets: ["helm.sh/helm/v4/cmd/helm"] };
    case "buildkitd":
      return { module: buildModule, targets: ["github.com/moby/buildkit/cmd/buildkitd"] };
    case "buildx":
      return { module: buildModule, targets: ["github.com/docker/buildx/cmd/buildx"] };
    case "promtool": {
      // Builds only the service discovery that our configuration uses.
      const tags = "remove_all_sd,enable_kubernetes_sd";
      return { module: "promtool", targets: ["-tags", tags, "github.com/prometheus/prometheus/cmd/promtool"] };
    }
    case "kube-apiserver":
    case "kube-controller-manager":
    case "kube-proxy":
      return { module: "control-plane", targets: [`./${program}`] };
    case "kubelet":
    case "kube-scheduler":
    case "kubectl":
    case "pause":
      return { module: clusterModule, targets: [`./${program}`] };
    case "agnhost":
    case "regression-issue-74839":
      return { module: clusterModule, targets: [`k8s.io/kubernetes/test/images/${program}`] };
    case "ginkgo":
      return { module: clusterModule, targets: ["github.com/onsi/ginkgo/v2/ginkgo"] };
    case "e2e.test":
      return { module: clusterModule, command: ["test", "-c"], targets: ["./e2e"] };
    case "coredns":
      return { module: "../e2e/programs/coredns", targets: ["."] };
    default:
      return assertNever(program);
  }
}

/** Go module of the programs of a whole cluster. */
const clusterModule = "../e2e/programs/kubernetes";

/** Go module of what builds images. */
const buildModule = "../deploy/buildkit";

function cacheRoot(): string {
  return testCache("control-plane");
}

function pathOf(program: Program): string {
  return join(cacheFolder(program), program);
}

/** Returns the cache folder, one per set of sources: a changed version is built separately. */
function cacheFolder(program: Program): string {
  const { module } = sourceOf(program);
  const modules = module === "etcd" || module === "control-plane" ? "{control-plane,etcd}" : module;
  const hash = createHash("sha256").update(versionFlags(program));
  const sources = globSync([`${modules}/go.{mod,sum}`, `${modules}/**/{main,*_test}.go`], { cwd: import.meta.dirname });
  for (const source of sources.toSorted()) hash.update(source).update(readFileSync(join(import.meta.dirname, source)));
  return join(cacheRoot(), hash.digest("hex").slice(0, 16));
}

function say(text: string): void {
  process.stderr.write(`test/cluster: ${text}\n`);
}
