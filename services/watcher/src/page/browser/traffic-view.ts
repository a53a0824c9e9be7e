import { formatBytes, formatTime } from "./format.ts";
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
  #byService: ReadonlyMap<string, TrafficRow> = new Map();
  /** Key of the Service in the details, and the nodes that have traffic of it. */
  #selected: string | undefined;
  #byNode: readonly TrafficRow[] = [];
  #askedMs = Number.NEGATIVE_INFINITY;
  /** Time of the last answer, in milliseconds since 1970; undefined if there was none. */
  #answeredMs: number | undefined;
  /** Why the last question failed; undefined if it was answered. */
  #failure: string | undefined;

  /**
   * Asks again if the last answer is old, or about another Service than `selected`. Call it whenever the section is
   * shown; `onAnswer` shows it with the answer.
   */
  refresh(selected: string | undefined, onAnswer: () => void): void {
    const isOther = selected !== this.#selected;
    if (!isOther && performance.now() - this.#askedMs < intervalMs) return;
    if (isOther) this.#byNode = [];
    this.#selected = selected;
    this.#askedMs = performance.now();
    void this.#ask(selected).then(onAnswer);
  }

  async #ask(selected: string | undefined): Promise<void> {
    const [namespace = "", name = ""] = selected?.split("/") ?? [];
    try {
      const rows = await listTraffic({ limit: 1_000 });
      const byNode = selected === undefined ? [] : await listTraffic({ namespace, name });
      this.#byService = new Map(rows.map((row) => [`${row.namespace}/${row.name}`, row]));
      if (selected === this.#selected) this.#byNode = byNode;
      this.#answeredMs = Date.now();
      this.#failure = undefined;
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error);
    }
  }

  /** Connections and bytes per second of a Service. */
  cells(service: string): readonly Html[] {
    const row = this.#byService.get(service);
    if (row === undefined) return [html`–`, html`–`];
    return [html`${(row.connectionsPerSecond ?? 0).toFixed(1)}`, html`${bytesCell(row, row.bytesPerSecond)}`];
  }

  /** Nodes that have traffic of the Service in the details; empty if there is none. */
  details(): Html {
    return html`${trafficTable(this.#byNode)}`;
  }

  /**
   * Says that the numbers are old; "" if they are not. An older watcher does not know the question: then there are no
   * numbers, and nothing is said.
   */
  warning(): string {
    if (this.#failure === undefined || this.#answeredMs === undefined) return "";
    return `Traffic is old, from ${formatTime(this.#answeredMs).slice(0, 8)}: ${this.#failure}`;
  }
}

/** Bytes are unknown where none were ever counted. */
function bytesCell({ bytesFromClients = "0", bytesToClients = "0" }: TrafficRow, bytes: number | string = 0): string {
  return Number(bytesFromClients) + Number(bytesToClients) === 0 ? "–" : formatBytes(Number(bytes));
}

/** Returns the table of the nodes that have traffic of a Service; nothing if there is none. */
function trafficTable(rows: readonly TrafficRow[]): Html | false {
  if (rows.length === 0) return false;
  return html`<h3>Traffic by node</h3><table>
<thead><tr><th scope="col">Node</th><th scope="col">Connections/s</th><th scope="col">Bytes/s</th><th scope="col">Connections</th><th scope="col">Packets</th><th scope="col">Bytes from clients</th><th scope="col">Bytes to clients</th></tr></thead>
<tbody>${rows.map((row) => {
    const packets = Number(row.packetsFromClients ?? 0) + Number(row.packetsToClients ?? 0);
    return html`<tr><th scope="row">${row.node}</th><td>${(row.connectionsPerSecond ?? 0).toFixed(1)}</td><td>${bytesCell(row, row.bytesPerSecond)}</td><td>${row.connections ?? 0}</td><td>${packets || "–"}</td><td>${bytesCell(row, row.bytesFromClients)}</td><td>${bytesCell(row, row.bytesToClients)}</td></tr>`;
  })}</tbody></table>`;
}
