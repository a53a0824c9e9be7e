import { Counter, type Registry } from "prom-client";
import type { Review } from "./token-authority.ts";

/**
 * Metrics of the tokens that clients send. `TokenChecker` updates them. Separate from it, because the sink `to-api`
 * registers them without a checker, too: a dashboard then finds the series.
 */
export interface TokenMetrics {
  /**
   * Checks by result: "known" for a token that was accepted before and needs no review; "accepted" if its signature was
   * verified or the API server reviewed it; "refused".
   */
  readonly checks: Counter<"result">;
  /** Reviews by result. */
  readonly reviews: Counter<"result">;
}

const checkResults = ["known", "accepted", "refused"] as const;
const reviewResults: readonly Review["kind"][] = ["valid", "invalid", "forbidden", "unknown"];

/** Registers the metrics. */
export function makeTokenMetrics(registry: Registry): TokenMetrics {
  const registers = [registry];
  const labelNames = ["result"] as const;
  const checks = new Counter({
    name: "kpng_token_checks_total",
    help: "Checks of the tokens of calls, by result; known: accepted before, without a question to the API server",
    labelNames,
    registers,
  });
  const reviews = new Counter({
    name: "kpng_token_reviews_total",
    help: "Reviews of tokens by the API server, by result; forbidden: the watcher lacks the right; unknown: no answer",
    labelNames,
    registers,
  });
  for (const result of checkResults) checks.inc({ result }, 0);
  for (const result of reviewResults) reviews.inc({ result }, 0);
  return { checks, reviews };
}
