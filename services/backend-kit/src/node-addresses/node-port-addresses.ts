import { parseCidr } from "@kpng/model/address.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { NodePortAddressRule } from "@kpng/service-plan/node-port-addresses.ts";

/** Option `--nodeport-addresses`, as in kube-proxy, for service proxies and the backend `healthchecks`. */
export const nodePortAddressesOption: OptionSpec = repeatable(
  "--nodeport-addresses <cidrs>",
  "serve node ports on local addresses in these CIDRs, or on the Node's own with `primary` (default: all)",
);

/**
 * Parses the values of `--nodeport-addresses`: CIDRs of both families, or `primary` alone. None means all.
 * `readProxySettings` and the backend `healthchecks` call it. Separate, because that backend has no other settings of
 * a proxy.
 *
 * Errors: BAD_OPTION.
 */
export function parseNodePortAddresses(texts: readonly string[]): NodePortAddressRule {
  if (texts.includes("primary")) {
    if (texts.length === 1) return { kind: "primary" };
    throw new ProcessError("BAD_OPTION", "--nodeport-addresses: primary cannot be combined with CIDRs");
  }
  const cidrs = texts.map((text) => {
    const parsed = parseCidr(text);
    if (parsed !== undefined) return parsed.cidr;
    throw new ProcessError(
      "BAD_OPTION",
      `--nodeport-addresses "${text}" is not a CIDR: write 10.0.0.0/8, fd00::/8 or primary`,
    );
  });
  return { kind: "cidrs", cidrs };
}
