/** Commands that `run-blocks.nightly.test.ts` does not run. */
export interface Elsewhere {
  /** Matches the commands. */
  readonly pattern: RegExp;
  /** Only in this document. Default: everywhere. */
  readonly path?: string | undefined;
  /** Test file that runs the command, or one that differs only in names; undefined if none can. */
  readonly test?: string | undefined;
  /** Why it does not run here. */
  readonly reason: string;
}

const needsPods = "needs a cluster with our pods";
const needsRegistry = "needs a registry of images";

/**
 * The commands of the documents that need more than one machine without network, each with the test that runs it
 * instead, or the reason why none does. Everything else runs: `elsewhere.nightly.test.ts` fails for an entry that matches
 * nothing.
 */
export const elsewhere: readonly Elsewhere[] = [
  { pattern: /^npm (ci|run demo)\b/, reason: "needs a fresh clone", test: "test/documents/newcomer.nightly.test.ts" },
  { pattern: /^npm link\b/, reason: "changes the machine", test: "test/package/clone.nightly.test.ts" },
  {
    pattern: /^npm run (-s kpng|bundle)\b/,
    reason: "writes into the clone",
    test: "test/package/clone.nightly.test.ts",
  },
  { pattern: /^npm pack\b/, reason: "writes into the clone", test: "test/package/pack.nightly.test.ts" },
  { pattern: /^npm (run (check|test)|test)\b/, reason: "is the suite that runs this test" },
  { pattern: /./, path: "docs/install.md", reason: needsPods, test: "test/manifests/cluster.test.ts" },
  { pattern: /^docker compose\b/, reason: needsRegistry, test: "test/deploy/containers.nightly.test.ts" },
  { pattern: /^docker (build|buildx|load)\b/, reason: needsRegistry, test: "test/deploy/image.test.ts" },
  { pattern: /^node deploy\/images\/build\.ts\b/, reason: "takes minutes", test: "test/e2e/quick.nightly.test.ts" },
  { pattern: /^ctr\b/, reason: "needs containerd", test: "test/deploy/archive.nightly.test.ts" },
  { pattern: /^(skopeo|grype|trivy|npm audit)\b/, reason: "needs a registry, or a scanner with its database" },
  { pattern: /^kubectl get services/, reason: "needs an API server", test: "test/cluster/documents.nightly.test.ts" },
  {
    pattern: /^(npx )?kpng kube (to-api|get)\b/,
    reason: "needs an API server",
    test: "test/cluster/documents.nightly.test.ts",
  },
  {
    pattern: /--token-file \/run\/secrets/,
    reason: "needs a token of a pod",
    test: "test/manifests/containers.test.ts",
  },
  {
    pattern: /^kubectl --namespace kube-system get pods\b/,
    reason: "needs an API server",
    test: "test/cluster/documents.nightly.test.ts",
  },
  {
    pattern: /^kubectl --namespace kube-system (exec|logs)\b/,
    reason: needsPods,
    test: "test/e2e/quick.nightly.test.ts",
  },
  { pattern: /^kubectl logs\b/, reason: needsPods, test: "test/process/bug-report.test.ts" },
  { pattern: /^\{ kubectl /, reason: "writes files of a host", test: "test/manifests/build.test.ts" },
  { pattern: /^export OTEL/, reason: "needs a collector", test: "test/cluster/traces.test.ts" },
];

/** Returns why a command of a document does not run on one machine; undefined if it does. */
export function whereElse(path: string, command: string): Elsewhere | undefined {
  return elsewhere.find((one) => (one.path === undefined || one.path === path) && one.pattern.test(command.trim()));
}
