import { type OptionSpec, parseNonEmptyText, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { makeReviewCounter, TokenChecker } from "@kpng/watcher/identity/token-checker.ts";
import { kubeReviews } from "@kpng/watcher/identity/token-review.ts";
import type { Options } from "../context/command-context.ts";
import type { SinkContext } from "./sinks.ts";

/**
 * Options of `to-api` for clients that prove their identity by ServiceAccount tokens.
 */
export const tokenOptions: readonly OptionSpec[] = [
  {
    flags: "--token-audience <name>",
    description:
      "accept ServiceAccount tokens with this audience, over TLS; client certificates are then optional " +
      "(default: no tokens)",
    parse: parseNonEmptyText,
  },
  repeatable("--node-accounts <namespace/name>", "ServiceAccounts that may read the view of the node in their token", [
    "kube-system/kpng-node",
  ]),
  repeatable("--state-accounts <namespace/name>", "ServiceAccounts that may read the whole state, for relays", [
    "kube-system/kpng-relay",
  ]),
  repeatable("--inspection-accounts <namespace/name>", "ServiceAccounts that may use the whole inspect API"),
];

/**
 * Returns the checker of tokens that the values of {@link tokenOptions} describe; undefined without --token-audience.
 *
 * Errors: BAD_OPTION.
 */
export function makeTokenChecker(
  options: Options,
  { connect, log, metrics: registry }: SinkContext,
): TokenChecker | undefined {
  // Also without tokens, so that a dashboard finds the series.
  const reviews = makeReviewCounter(registry);
  const audience = options.tokenAudience as string | undefined;
  if (audience === undefined) return undefined;
  if (options.listenTlsKey === undefined || options.listenTlsCrt === undefined) {
    throw badOption("--token-audience needs --listen-tls-key and --listen-tls-crt: tokens are accepted over TLS only");
  }
  if (connect === undefined) throw badOption("--token-audience needs an API server: kpng kube, or kpng api");
  return new TokenChecker({
    review: kubeReviews(connect, audience),
    audience,
    accounts: {
      node: accountsOf("--node-accounts", options.nodeAccounts),
      state: accountsOf("--state-accounts", options.stateAccounts),
      inspection: accountsOf("--inspection-accounts", options.inspectionAccounts),
    },
    log,
    reviews,
  });
}

function accountsOf(option: string, value: unknown): ReadonlySet<string> {
  const accounts = value as readonly string[];
  const invalid = accounts.find((account) => !/^[a-z0-9.-]+\/[a-z0-9.-]+$/.test(account));
  if (invalid !== undefined) throw badOption(`${option} "${invalid}" is not an account: write namespace/name`);
  return new Set(accounts);
}

function badOption(message: string): ProcessError {
  return new ProcessError("BAD_OPTION", message);
}
