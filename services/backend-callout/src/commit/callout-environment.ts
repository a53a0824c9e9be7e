/**
 * Variables that hold credentials of kpng, or name the files with them: headers and TLS files of the trace exporter,
 * TLS files and tokens of kpng's options. KUBECONFIG is not among them: kpng-callout does not read it, and scripts that
 * call kubectl need it.
 */
const credentials = /^(OTEL_EXPORTER_OTLP_(\w+_)?(HEADERS|CERTIFICATE|CLIENT_KEY)|KPNG_(\w+_)?(TLS_\w+|TOKEN))$/;

/** Variables that a program gets also with --callout-env: without them few scripts work. */
const alwaysPassed = ["PATH", "HOME"];

/**
 * Returns the variables of `own`, our environment, that the program inherits: all except credentials of kpng, or if
 * `names` is not empty (--callout-env), these variables, PATH and HOME. A credential that is named is passed. Pure.
 *
 * `calloutBackend` calls it once, at the start. Separate, so that this file alone decides about credentials.
 */
export function inheritedEnvironment(own: NodeJS.ProcessEnv, names: readonly string[]): NodeJS.ProcessEnv {
  const isPassed = (name: string): boolean =>
    names.length === 0 ? !credentials.test(name) : names.includes(name) || alwaysPassed.includes(name);
  return Object.fromEntries(Object.entries(own).filter(([name]) => isPassed(name)));
}
