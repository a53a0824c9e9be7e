import type { LiveNode, NodeState } from "../live/live-rows.ts";
import { TableRows } from "./dom.ts";
import { formatMs } from "./format.ts";
import { html } from "./html.ts";
import type { PageState } from "./page-state.ts";

/** Rows of nodes or Services that are shown at once: a browser with thousands of them would be slow. */
export const maxShownRows = 200;

/**
 * Section of the status page with the table of nodes, the worst state first, then the longest lag. `main.ts` creates
 * it, and calls `show` after each frame from the watcher. Each section has a file of its own.
 */
export class NodesView {
  readonly #rows: TableRows<LiveNode>;
  readonly #filter: HTMLInputElement;
  readonly #stateFilter: HTMLSelectElement;
  readonly #count: Element;
  #nowMs = 0;

  constructor(body: HTMLElement, filter: HTMLInputElement, stateFilter: HTMLSelectElement, count: Element) {
    this.#filter = filter;
    this.#stateFilter = stateFilter;
    this.#count = count;
    this.#rows = new TableRows(
      body,
      ({ name }) => name,
      (node) => [
        html`<a href="#/explain?node=${encodeURIComponent(node.name)}">${node.name}</a>`,
        html`<span class="${node.state}">${node.state}</span>`,
        html`${node.sinceMs === 0 ? "–" : formatMs(Math.max(0, this.#nowMs - node.sinceMs))}`,
        html`${node.streamCount === 0 ? "–" : node.revision === 0 ? "newest" : node.revision}`,
        html`${node.zone || "–"}`,
        html`${node.programs || "–"}`,
        html`${node.streamCount}${node.observerCount > 0 && html` <span class="quiet">+ ${node.observerCount} observing</span>`}`,
        html`<span class="error">${node.error}</span>`,
      ],
    );
  }

  show({ nodes, status }: PageState): void {
    this.#nowMs = status?.nowMs ?? 0;
    const wanted = this.#filter.value.trim().toLowerCase();
    const state = this.#stateFilter.value;
    const matching = [...nodes.values()].filter((node) => {
      const text = `${node.name} ${node.zone} ${node.programs} ${node.error}`.toLowerCase();
      return (state === "" || node.state === state) && text.includes(wanted);
    });
    matching.sort(
      (a, b) =>
        order.indexOf(a.state) - order.indexOf(b.state) ||
        (a.sinceMs || Number.POSITIVE_INFINITY) - (b.sinceMs || Number.POSITIVE_INFINITY) ||
        a.name.localeCompare(b.name, "en", { numeric: true }),
    );
    this.#rows.show(matching.slice(0, maxShownRows));
    showCount(this.#count, matching.length, nodes.size, "nodes");
  }
}

const order: readonly NodeState[] = ["failing", "behind", "unknown", "absent", "received", "current"];

/** Says how many rows match and are shown, also for `ServicesView`. Only if the text changed: it is a live region. */
export function showCount(element: Element, matching: number, all: number, noun: string): void {
  const more = matching > maxShownRows ? `; the first ${maxShownRows} are shown` : "";
  const text = matching === all ? `${all} ${noun}${more}` : `${matching} of ${all} ${noun}${more}`;
  if (element.textContent !== text) element.textContent = text;
}
