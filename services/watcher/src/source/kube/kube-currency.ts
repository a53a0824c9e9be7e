import type { PositionKind } from "@kpng/model/forward/position.ts";
import { probeServer } from "../probe-server.ts";
import type { CurrencySink } from "../source.ts";
import type { KubeConnection } from "./client/connection.ts";
import { describeFailure } from "./client/request-failure.ts";
import { catchUp, listAgain } from "./reflector/catch-up.ts";
import type { Reflector } from "./reflector/reflector.ts";
import { isOlder } from "./reflector/resource-version.ts";
import { currentResourceVersion } from "./request/list-pages.ts";

interface KubeCurrencyOptions {
  readonly connection: KubeConnection;
  readonly currency: CurrencySink;
  readonly reflectors: Readonly<Record<PositionKind, Reflector>>;
  /** Time without an answer of the API server after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

/**
 * Lets nodes ask whether the state of a `kubeSource` is current, and reports when the API server does not answer. Runs
 * until `signal` aborts.
 *
 * `kubeSource` runs it beside its reflectors. Separate from them, because it compares all kinds at once.
 */
export async function followCurrency(
  { connection, currency, reflectors, staleAfterMs }: KubeCurrencyOptions,
  signal: AbortSignal,
): Promise<void> {
  const all = Object.entries(reflectors) as [PositionKind, Reflector][];
  currency.verifyWith(async (needed, isNewEpoch) => {
    // In a new epoch, as after a restore of etcd, versions cannot be compared with earlier ones.
    const results = await Promise.all(
      all.map(([kind, reflector]) =>
        isNewEpoch ? listAgain(reflector, signal) : catchUp(reflector, { connection, needed: needed[kind] }, signal),
      ),
    );
    // The caches pass on what they received with a delay of one turn.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    return results.every((isCurrent) => isCurrent);
  });
  const { services } = reflectors;
  const ask = async (limitMs: number): Promise<string | undefined> => {
    const request = { ...services.resource, labelSelector: undefined, silenceMs: limitMs };
    const end = await currentResourceVersion(connection, request, signal);
    // The first lists are reported by the readiness of the process.
    if (all.some(([, { listCount }]) => listCount === 0)) return undefined;
    if (end.kind !== "listed") return describeFailure(end);
    if (isOlder(end.resourceVersion, String(services.version ?? ""))) {
      for (const [, reflector] of all) reflector.requestList("went-back");
    }
    const failure = all.map(([, reflector]) => reflector.failure).find((one) => one !== undefined);
    return failure && describeFailure(failure);
  };
  // A watch over a connection that was cut off may stay silent for a minute.
  const onFresh = (): void => {
    for (const [, reflector] of all) reflector.restartWatch();
  };
  await probeServer({ ask, currency, staleAfterMs, onFresh }, signal);
}
