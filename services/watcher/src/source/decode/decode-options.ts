import { compileGlobs } from "./globs.ts";

/**
 * Which labels and annotations are kept. All others are dropped, and their changes make no revision. The sources `kube`
 * and `file` pass them to `decodeNode` and `decodeService`. Separate, because both sources and both decoders share the
 * type.
 */
export interface DecodeOptions {
  readonly serviceLabels: NameFilter;
  readonly serviceAnnotations: NameFilter;
  readonly nodeLabels: NameFilter;
  readonly nodeAnnotations: NameFilter;
}

/** Returns true if labels or annotations of that name are kept. */
export type NameFilter = (name: string) => boolean;

/** Values of options such as --with-node-labels, as globs. Absent ones have KPNG's defaults. */
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

/**
 * Compiles the globs into filters. Errors: BAD_OPTION for an invalid glob. The commands `kpng kube` and `kpng file`
 * call it with the values of their options.
 */
export function makeDecodeOptions(globs: DecodeGlobs = {}): DecodeOptions {
  return {
    serviceLabels: compileGlobs(globs.serviceLabels ?? []),
    serviceAnnotations: compileGlobs(globs.serviceAnnotations ?? []),
    nodeLabels: compileGlobs(globs.nodeLabels ?? defaultNodeLabels),
    nodeAnnotations: compileGlobs(globs.nodeAnnotations ?? []),
  };
}
