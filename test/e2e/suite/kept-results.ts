import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testCache } from "../../cluster/test-cache.ts";
import { type ProxyName, proxyNames } from "../options.ts";
import type { TestResult } from "./report.ts";
import type { Column } from "./table.ts";

/**
 * Keeps the results of a complete run, so that tables of later runs with other proxies have a column for them.
 * `family` names the addresses of the cluster.
 */
export function keepResults(family: string, proxy: ProxyName, results: readonly TestResult[]): void {
  mkdirSync(testCache("e2e"), { recursive: true });
  writeFileSync(fileOf(family, proxy), JSON.stringify(results));
}

/**
 * Returns a column for each proxy: the given results, and otherwise those that are kept. Of kept results only the tests
 * are shown that a proxy of this run has a result for.
 */
export function keptResults(family: string, own: ReadonlyMap<ProxyName, readonly TestResult[]>): readonly Column[] {
  const names = new Set([...own.values()].flatMap((results) => results.map(({ name }) => name)));
  return proxyNames.flatMap((proxy) => {
    const title = proxy.startsWith("kube-proxy") ? proxy : `kpng-${proxy}`;
    const results = own.get(proxy) ?? readKept(family, proxy)?.filter(({ name }) => names.has(name));
    return results === undefined ? [] : [{ title: own.has(proxy) ? title : `${title} (earlier)`, results }];
  });
}

function readKept(family: string, proxy: ProxyName): readonly TestResult[] | undefined {
  try {
    return JSON.parse(readFileSync(fileOf(family, proxy), "utf8")) as readonly TestResult[];
  } catch {
    return undefined;
  }
}

function fileOf(family: string, proxy: ProxyName): string {
  return join(testCache("e2e"), `results-${family}-${proxy}.json`);
}
