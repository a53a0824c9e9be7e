import { formatBytes } from "./format.ts";
import { type Html, html } from "./html.ts";
import { listTraffic } from "./inspect-client.ts";
import type { TrafficRow } from "./inspect-rows.ts";

/** Time between two questions, in milliseconds. Nodes report every two seconds at most. */
const intervalMs = 5_000;

/**
 * The traffic of Services, for the columns of `ServicesView` and its details. Asks the watcher while that section is
 * shown, because nodes report traffic only with `--service-traffic`, and the event stream does not contain it.
 */
export class TrafficView {
  readonly #byService = new Map<string, TrafficRow>();
  #askedMs = Number.NEGATIVE_INFINITY;

  /**
   * Asks again if the last answer is old. Call it whenever the section is shown; `onAnswer` shows it with the answer.
   */
  refresh(onAnswer: () => void): void {
    if (performance.now() - this.#askedMs < intervalMs) return;
    this.#askedMs = performance.now();
    listTraffic({ limit: 1_000 }).then(
      (rows) => {
        this.#byService.clear();
        for (const row of rows) this.#byService.set(`${row.namespace}/${row.name}`, row);
        onAnswer();
      },
      // An older watcher does not know the question; the columns stay empty.
      () => undefined,
    );
  }

  /** Connections and bytes per second of a Service. */
  cells(service: string): readonly Html[] {
    const row = this.#byService.get(service);
    if (row === undefined) return [html`–`, html`–`];
    return [html`${(row.connectionsPerSecond ?? 0).toFixed(1)}`, html`${formatBytes(row.bytesPerSecond ?? 0)}`];
  }
}

/** Returns the table of the nodes that have traffic of a Service; nothing if there is none. */
export function trafficTable(rows: readonly TrafficRow[]): Html | false {
  if (rows.length === 0) return false;
  return html`<h3>Traffic by node</h3><table>
<thead><tr><th scope="col">Node</th><th scope="col">Connections/s</th><th scope="col">Bytes/s</th><th scope="col">Connections</th><th scope="col">Packets</th><th scope="col">Bytes from clients</th><th scope="col">Bytes to clients</th></tr></thead>
<tbody>${rows.map((row) => {
    const packets = Number(row.packetsFromClients ?? 0) + Number(row.packetsToClients ?? 0);
    return html`<tr><th scope="row">${row.node}</th><td>${(row.connectionsPerSecond ?? 0).toFixed(1)}</td><td>${formatBytes(row.bytesPerSecond ?? 0)}</td><td>${row.connections ?? 0}</td><td>${packets || "–"}</td><td>${formatBytes(Number(row.bytesFromClients ?? 0))}</td><td>${formatBytes(Number(row.bytesToClients ?? 0))}</td></tr>`;
  })}</tbody></table>`;
}
