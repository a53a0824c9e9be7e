import { type OptionSpec, parseProxyName, repeatable } from "@kpng/process/options.ts";
import type { Options } from "../context/command-context.ts";

/**
 * Option that selects the Services to serve. `makeSource` adds it to every source, as in KPNG, because it applies to
 * every sink. A Service names its proxy in the label `service.kubernetes.io/service-proxy-name`.
 */
export const proxyNameOption: OptionSpec = (() => {
  const spec = repeatable(
    "--service-proxy-name <name>",
    "read and serve only Services with this value of the label service.kubernetes.io/service-proxy-name; subscribers that name " +
      "no value get the first (default: Services without the label, and any other value on request)",
  );
  const parse = (text: string, previous: unknown): unknown => {
    text.split(",").forEach(parseProxyName);
    return spec.parse?.(text, previous);
  };
  return { ...spec, parse };
})();

/** The values of {@link proxyNameOption}. */
export function readProxyNames(options: Options): readonly string[] {
  return options.serviceProxyName as readonly string[];
}
