import { Counter, Gauge, type Registry } from "prom-client";

/** Registers a gauge whose value is computed at each scrape. */
export function addGauge(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

/**
 * Registers a counter with one label. The series for known values start at 0, because a rate over a series that starts
 * with its first event would miss that event.
 */
export function addCounter<L extends string>(
  registry: Registry,
  name: string,
  help: string,
  label: L,
  values: readonly string[],
): Counter<L> {
  const counter = new Counter({ name, help, labelNames: [label], registers: [registry] });
  for (const value of values) counter.inc({ [label]: value } as Record<L, string>, 0);
  return counter;
}
