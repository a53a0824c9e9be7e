import type { Laboratory } from "./laboratory.ts";

/**
 * Returns whether an address answers one ping, sent from a network namespace of the laboratory, within a second;
 * undefined if `ping` is not installed.
 *
 * A laboratory is a set of network namespaces in which `npm run demo` and the tests send real packets. The demo and a
 * kernel test call this function. Separate from the agents, which send only TCP and UDP.
 */
export async function ping(
  laboratory: Laboratory,
  networkNamespace: string,
  address: string,
): Promise<boolean | undefined> {
  const { exitCode } = await laboratory.tryRun(networkNamespace, ["ping", "-c", "1", "-W", "1", address]);
  // setpriv, which starts every command in a namespace, exits with 127 if it does not find the command.
  return exitCode === 127 ? undefined : exitCode === 0;
}
