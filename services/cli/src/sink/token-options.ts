import { type OptionSpec, parseDurationMs, parseNonEmptyText, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { fileAuthority } from "@kpng/watcher/identity/token/file-authority.ts";
import { kubeAuthority } from "@kpng/watcher/identity/token/kube-authority.ts";
import type { TokenAuthority } from "@kpng/watcher/identity/token/token-authority.ts";
import { TokenChecker } from "@kpng/watcher/identity/token/token-checker.ts";
import { makeTokenMetrics } from "@kpng/watcher/identity/token/token-metrics.ts";
import type { Options } from "../context/command-context.ts";
import type { SinkContext } from "./sink-command.ts";

/**
 * Options of `to-api` for clients that prove their identity by ServiceAccount tokens. `toApi` uses both exports of this
 * file. Separate from it, because it has many other options.
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
  {
    flags: "--token-review-interval <duration>",
    description:
      "time after which the API server reviews a token in use again; a deleted pod loses its streams then (0: never)",
    parse: parseDurationMs,
    default: 300_000,
  },
  repeatable(
    "--token-issuer <url>",
    "issuer of tokens to accept, besides the one that the API server names; needed with --token-jwks",
  ),
  {
    flags: "--token-jwks <file>",
    description: "public keys of the issuers, for a watcher without an API server; such tokens are not reviewed",
    parse: parseNonEmptyText,
  },
];

/**
 * Returns the checker of tokens that the values of {@link tokenOptions} describe; undefined without --token-audience.
 *
 * Errors: BAD_OPTION; TOKEN_FILE if the keys of --token-jwks cannot be used.
 */
export function makeTokenChecker(
  options: Options,
  { connect, log, metrics: registry }: SinkContext,
): TokenChecker | undefined {
  // Also without tokens, so that a dashboard finds the series.
  const metrics = makeTokenMetrics(registry);
  const audience = options.tokenAudience as string | undefined;
  if (audience === undefined) return undefined;
  if (options.listenTlsKey === undefined || options.listenTlsCrt === undefined) {
    throw badOption("--token-audience needs --listen-tls-key and --listen-tls-crt: tokens are accepted over TLS only");
  }
  return new TokenChecker({
    authority: authorityOf(options, audience, connect),
    audience,
    accounts: {
      node: accountsOf("--node-accounts", options.nodeAccounts),
      state: accountsOf("--state-accounts", options.stateAccounts),
      inspection: accountsOf("--inspection-accounts", options.inspectionAccounts),
    },
    reviewMs: options.tokenReviewInterval as number,
    log,
    metrics,
  });
}

function authorityOf(options: Options, audience: string, connect: SinkContext["connect"]): TokenAuthority {
  const issuers = options.tokenIssuer as readonly string[];
  const path = options.tokenJwks as string | undefined;
  if (path !== undefined) {
    if (issuers.length === 0) throw badOption("--token-jwks needs --token-issuer");
    return fileAuthority(path, issuers);
  }
  if (connect !== undefined) return kubeAuthority({ connect, audience, moreIssuers: issuers });
  throw badOption("--token-audience needs an API server (kpng kube), or --token-jwks and --token-issuer");
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
