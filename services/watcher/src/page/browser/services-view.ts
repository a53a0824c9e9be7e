import { setHtml, TableRows } from "./dom.ts";
import { type Html, html } from "./html.ts";
import { listDecisions, listEndpoints } from "./inspect-client.ts";
import { type DecisionRow, type EndpointRow, type ServiceRow, serviceKey, wordOf } from "./inspect-rows.ts";
import { maxShownRows, showCount } from "./nodes-view.ts";
import type { PageState } from "./page-state.ts";

/**
 * Section of the status page with the table of Services, and the details of one: its endpoints, and what a node does
 * with them. `main.ts` creates it, and calls `show` after each frame. Each section has a file of its own.
 */
export class ServicesView {
  readonly #rows: TableRows<ServiceRow>;
  readonly #filter: HTMLInputElement;
  readonly #count: Element;
  readonly #detail: HTMLElement;
  /** Key of the Service in the details; undefined for none. */
  #key: string | undefined;
  /** The row and the node for which the details were loaded last. */
  #loaded: { readonly row: ServiceRow | undefined; readonly node: string } | undefined;
  #isLoading = false;
  #node = "";

  constructor(body: HTMLElement, filter: HTMLInputElement, count: Element, detail: HTMLElement) {
    this.#filter = filter;
    this.#count = count;
    this.#detail = detail;
    this.#rows = new TableRows(body, serviceKey, serviceCells);
    detail.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#node = detail.querySelector("input")?.value.trim() ?? "";
      this.#loaded = undefined;
      void this.#load(undefined);
    });
  }

  /** Chooses the Service of the details; undefined for none. */
  select(key: string | undefined): void {
    if (key === this.#key) return;
    this.#key = key;
    this.#loaded = undefined;
    this.#detail.hidden = key === undefined;
    if (key === undefined) return;
    setHtml(this.#detail, detailFrame(key, this.#node));
  }

  show(state: PageState): void {
    const { services } = state;
    const wanted = this.#filter.value.trim().toLowerCase();
    const matching = [...services].filter(([key, row]) => {
      return wanted === "" || `${key} ${addressesOf(row).join(" ")}`.toLowerCase().includes(wanted);
    });
    matching.sort(([a], [b]) => (a < b ? -1 : 1));
    this.#rows.show(matching.slice(0, maxShownRows).map(([, row]) => row));
    showCount(this.#count, matching.length, services.size, "Services");
    const row = this.#key === undefined ? undefined : services.get(this.#key);
    // A Service that has changed, or whose endpoints have, has another row.
    if (this.#key !== undefined && this.#loaded?.row !== row) void this.#load(row);
  }

  async #load(row: ServiceRow | undefined): Promise<void> {
    const [key, node] = [this.#key, this.#node];
    if (key === undefined || this.#isLoading) return;
    this.#isLoading = true;
    const [namespace = "", name = ""] = key.split("/");
    let content: Html;
    try {
      const endpoints = await listEndpoints(namespace, name);
      const decisions = node === "" ? undefined : await listDecisions(node, namespace, name);
      content = html`${endpointTable(endpoints)}${decisions && decisionTable(node, decisions)}`;
    } catch (error) {
      content = html`<p class="error">${error instanceof Error ? error.message : String(error)}</p>`;
    }
    this.#isLoading = false;
    if (key !== this.#key) return;
    this.#loaded = { row: row ?? this.#loaded?.row, node };
    const target = this.#detail.querySelector(".loaded");
    if (target !== null) setHtml(target, content);
  }
}

function addressesOf(row: ServiceRow): readonly string[] {
  return [...(row.clusterIps ?? []), ...(row.externalIps ?? []), ...(row.loadBalancerIps ?? [])];
}

function serviceCells(row: ServiceRow): readonly Html[] {
  const { namespace = "", name = "", endpoints = {} } = row;
  const ready = endpoints.ready ?? 0;
  const ports = (row.ports ?? []).map(({ name: portName = "", port = 0, protocol, nodePort = 0 }) => {
    const label = portName === "" ? "" : `${portName}:`;
    return `${label}${port}/${wordOf(protocol, "PROTOCOL").toUpperCase()}${nodePort === 0 ? "" : ` (node port ${nodePort})`}`;
  });
  return [
    html`<a href="#/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}">${namespace}/${name}</a>`,
    html`${row.isHeadless === true ? "headless" : (row.type ?? "")}`,
    html`${addressesOf(row).join(", ") || "–"}`,
    html`${ports.join(", ") || "–"}`,
    html`<span class="${ready === 0 ? "warning" : "yes"}">${ready}</span>`,
    html`${endpoints.terminating ?? 0}`,
    html`${endpoints.notReady ?? 0}`,
  ];
}

function detailFrame(key: string, node: string): Html {
  return html`<h2 tabindex="-1">${key}</h2>
<form>
<label>What does this node do with the endpoints? <input name="node" list="node-names" value="${node}" placeholder="node" maxlength="253" autocomplete="off"></label>
<button type="submit">Show</button>
<a href="#/explain?destination=${encodeURIComponent(key)}">Explain a packet</a>
<a href="#/services">Close</a>
</form>
<div class="loaded" aria-live="polite"></div>`;
}

function endpointTable(endpoints: readonly EndpointRow[]): Html {
  if (endpoints.length === 0) return html`<p class="warning">It has no endpoints: connections are refused.</p>`;
  return html`<h3>Endpoints</h3><table>
<thead><tr><th scope="col">Addresses</th><th scope="col">Pod</th><th scope="col">Node</th><th scope="col">Zone</th><th scope="col">Condition</th><th scope="col">Hints</th></tr></thead>
<tbody>${endpoints.map((row) => {
    const hints = [...(row.hintedZones ?? []), ...(row.hintedNodes ?? [])].join(", ");
    return html`<tr><th scope="row">${(row.addresses ?? []).join(", ")}</th><td>${row.pod || "–"}</td><td>${row.node || "–"}</td><td>${row.zone || "–"}</td><td>${conditionOf(row)}</td><td>${hints || "–"}</td></tr>`;
  })}</tbody></table>`;
}

function conditionOf({ isReady, isServing, isTerminating }: EndpointRow): Html {
  if (isReady === true) return html`<span class="yes">ready</span>`;
  const word = isTerminating === true ? "terminating" : "not ready";
  return html`<span class="warning">${word}${isServing === true && ", serving"}</span>`;
}

function decisionTable(node: string, decisions: readonly DecisionRow[]): Html {
  return html`<h3>On node ${node}</h3><table>
<thead><tr><th scope="col">Endpoint</th><th scope="col">Port</th><th scope="col">Pod</th><th scope="col">Its node</th><th scope="col">Used</th><th scope="col">Reason</th></tr></thead>
<tbody>${decisions.map((row) => decisionCells(row))}</tbody></table>`;
}

/** Returns the row of an endpoint with the reason why a node uses it or not, also for `explain-view.ts`. */
export function decisionCells({
  address = "",
  port = 0,
  portName,
  protocol,
  pod,
  node,
  isUsed,
  text,
}: DecisionRow): Html {
  const used = isUsed === true ? html`<span class="yes">yes</span>` : html`<span class="warning">no</span>`;
  const shownPort = `${portName === undefined ? "" : `${portName}/`}${wordOf(protocol, "PROTOCOL").toUpperCase()}`;
  return html`<tr><th scope="row">${address.includes(":") ? `[${address}]` : address}:${port}</th><td>${shownPort}</td><td>${pod || "–"}</td><td>${node || "–"}</td><td>${used}</td><td>${text}</td></tr>`;
}
