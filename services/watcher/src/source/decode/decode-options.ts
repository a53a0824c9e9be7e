import { compileGlobs } from "./globs.ts";

/** Returns true if a label or an annotation of that name is kept. */
export type NameFilter = (name: string) => boolean;

/** Which labels and annotations are kept; all others are forgotten, and their changes make no revision. */
export interface DecodeOptions {
  readonly serviceLabels: NameFilter;
  readonly serviceAnnotations: NameFilter;
  readonly nodeLabels: NameFilter;
  readonly nodeAnnotations: NameFilter;
}

/** Globs as on the command line; an absent one takes KPNG's default. */
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

/** Source: KPNG, `kube2store.go`, --with-node-labels. */
export const defaultNodeLabels: readonly string[] = [
  "kubernetes.io/hostname",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
];

/** Errors: BAD_OPTION for a malformed glob. */
export function makeDecodeOptions(globs: DecodeGlobs = {}): DecodeOptions {
  return {
    serviceLabels: compileGlobs(globs.serviceLabels ?? []),
    serviceAnnotations: compileGlobs(globs.serviceAnnotations ?? []),
    nodeLabels: compileGlobs(globs.nodeLabels ?? defaultNodeLabels),
    nodeAnnotations: compileGlobs(globs.nodeAnnotations ?? []),
  };
}
