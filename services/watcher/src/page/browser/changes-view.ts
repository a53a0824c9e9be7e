import type { LiveChange } from "../live/live-rows.ts";
import { setHtml, TableRows } from "./dom.ts";
import { formatMs, formatTime } from "./format.ts";
import { type Html, html } from "./html.ts";
import type { PageState } from "./page-state.ts";
import { stageTable, waterfallBar } from "./waterfall.ts";

/**
 * Section of the status page with the newest changes, and the stages of one. `main.ts` creates it, and calls `show`
 * after each frame from the watcher. Each section has a file of its own.
 */
export class ChangesView {
  readonly #rows: TableRows<LiveChange>;
  readonly #detail: HTMLElement;
  #revision: number | undefined;

  constructor(body: HTMLElement, detail: HTMLElement) {
    this.#detail = detail;
    this.#rows = new TableRows(body, ({ revision }) => String(revision), changeCells);
  }

  /** Chooses the revision of the details; undefined for none. */
  select(revision: number | undefined): void {
    this.#revision = revision;
    this.#detail.hidden = revision === undefined;
  }

  show({ changes }: PageState): void {
    this.#rows.show([...changes.values()].sort((a, b) => b.revision - a.revision));
    if (this.#revision === undefined) return;
    const change = changes.get(this.#revision);
    if (change !== undefined) setHtml(this.#detail, changeDetail(change));
    // Details that were shown before stay when newer changes have replaced the row.
    else if (this.#detail.querySelector("h2")?.textContent !== `Revision ${this.#revision}`) {
      setHtml(
        this.#detail,
        html`<h2 tabindex="-1">Revision ${this.#revision}</h2><p>It is not one of the newest changes: kpng trace ${this.#revision} shows it.</p><p><a href="#/changes">Close</a></p>`,
      );
    }
  }
}

function changeCells(change: LiveChange): readonly Html[] {
  const { revision, storedAtMs, sentCount, appliedCount, failedCount, lostCount, total } = change;
  const ms = (index: 0 | 2): Html => html`${total === undefined ? "–" : formatMs(total[index])}`;
  return [
    html`<a href="#/changes/${revision}">${revision}</a>`,
    html`${formatTime(storedAtMs)}`,
    html`${objectsText(change)}`,
    html`${appliedCount} of ${sentCount}${failedCount > 0 && html` <span class="failing">${failedCount} failed</span>`}${lostCount > 0 && html` <span class="warning">${lostCount} lost</span>`}`,
    ms(0),
    ms(2),
    html`${waterfallBar(change)}${change.slowest?.node}`,
  ];
}

function objectsText({ objects, objectCount, isFirstList }: LiveChange): string {
  if (isFirstList) return `first list of ${objectCount} objects`;
  const more = objectCount - objects.length;
  return `${objects.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function changeDetail(change: LiveChange): Html {
  const { revision, storedAtMs, source, failures } = change;
  return html`<h2 tabindex="-1">Revision ${revision}</h2>
<p>${objectsText(change)}; stored at ${formatTime(storedAtMs)}${source !== "" && `, from ${source}`}; applied by ${change.appliedCount} of ${change.sentCount} nodes.</p>
${stageTable(change)}
${failures.map(({ node, error }) => html`<p class="error">Failed on ${node}: ${error}</p>`)}
<p><a href="#/changes">Close</a></p>`;
}
