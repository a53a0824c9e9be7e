import { type OptionSpec, parseProxyName, repeatable } from "@kpng/process/options.ts";
import type { Options } from "../context/command-context.ts";

/** Which Services: an option of the source, as in KPNG, because every sink that serves nodes obeys it. */
export const proxyNameOption: OptionSpec = (() => {
  const spec = repeatable(
    "--service-proxy-name <name>",
    "serve only Services with this value of the label service.kubernetes.io/service-proxy-name, the first to subscribers " +
      "that name none (default: Services without the label, and any other to who asks for it)",
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
