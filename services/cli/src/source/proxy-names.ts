import { type OptionSpec, parseProxyName, repeatable } from "@kpng/process/options.ts";
import type { Options } from "../context/command-context.ts";

/**
 * Option that selects the Services to serve. A Service names its proxy in the label
 * `service.kubernetes.io/service-proxy-name`. `makeSource` adds the option to every source and not to the sinks, as in
 * KPNG, because it holds for all of them. A file of its own, because sources and sinks need the values.
 */
export const proxyNameOption: OptionSpec = (() => {
  const spec = repeatable(
    "--service-proxy-name <name>",
    "read and serve only Services with this value of the label service.kubernetes.io/service-proxy-name; subscribers that name " +
      "no value get the first (default: Services without the label, and any other value on request)",
  );
  const parse = (text: string, previous: unknown): unknown => {
    // Rejects invalid names.
    text.split(",").forEach(parseProxyName);
    return spec.parse?.(text, previous);
  };
  return { ...spec, parse };
})();

/** Returns the values of {@link proxyNameOption}, for the source `kube` and the sinks `to-api` and `to-local`. */
export function readProxyNames(options: Options): readonly string[] {
  return options.serviceProxyName as readonly string[];
}
