import { ProcessError } from "@kpng/process/process-error.ts";

/**
 * Which labels and annotations are kept. All others are dropped, and their changes make no revision.
 */
export interface DecodeOptions {
  readonly serviceLabels: NameFilter;
  readonly serviceAnnotations: NameFilter;
  readonly nodeLabels: NameFilter;
  readonly nodeAnnotations: NameFilter;
}

/** Returns true if labels or annotations of that name are kept. */
type NameFilter = (name: string) => boolean;

/** Values of options such as --with-node-labels, as globs: `*` stands for any characters, also slashes, `?` for one. Absent ones have KPNG's defaults. */
export interface DecodeGlobs {
  /** Default none. */
  readonly serviceLabels?: readonly string[] | undefined;
  /** Default none. */
  readonly serviceAnnotations?: readonly string[] | undefined;
  /** Default host name, zone and region. */
  readonly nodeLabels?: readonly string[] | undefined;
  /** Default none. */
  readonly nodeAnnotations?: readonly string[] | undefined;
}

/** Default of --with-node-labels. Source: KPNG, `kube2store.go`. */
export const defaultNodeLabels: readonly string[] = [
  "kubernetes.io/hostname",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
];

/** Compiles the globs into filters. Errors: BAD_OPTION for an unsupported glob. */
export function makeDecodeOptions(globs: DecodeGlobs = {}): DecodeOptions {
  return {
    serviceLabels: compileGlobs(globs.serviceLabels ?? []),
    serviceAnnotations: compileGlobs(globs.serviceAnnotations ?? []),
    nodeLabels: compileGlobs(globs.nodeLabels ?? defaultNodeLabels),
    nodeAnnotations: compileGlobs(globs.nodeAnnotations ?? []),
  };
}

/** Returns a predicate that is true for names that fully match one of the globs. */
function compileGlobs(globs: readonly string[]): NameFilter {
  const patterns = globs.map((glob) => {
    // KPNG's globs have classes, alternatives and escapes. No name of a label contains these characters.
    if (/[[\]{}\\]/.test(glob)) {
      throw new ProcessError("BAD_OPTION", `"${glob}" is not a glob of * and ?; repeat the option for alternatives`);
    }
    return new RegExp(`^${RegExp.escape(glob).replaceAll("\\*", ".*").replaceAll("\\?", ".")}$`, "su");
  });
  return (name) => patterns.some((pattern) => pattern.test(name));
}
