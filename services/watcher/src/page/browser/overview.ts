import { setHtml } from "./dom.ts";
import { formatMs, formatTime } from "./format.ts";
import { type Html, html } from "./html.ts";
import type { PageState } from "./page-state.ts";
import { plot } from "./plot.ts";

/**
 * Shows the first section of the status page: the counts of the watcher, what needs attention, and both plots.
 * `main.ts` calls it after each frame from the watcher. Each section has a file of its own.
 */
export function showOverview(state: PageState, parts: OverviewParts): void {
  const { status } = state;
  if (status === undefined) return;
  const problems = warnings(state);
  setHtml(
    parts.warnings,
    problems.length === 0 ? html`<p class="current">No problems found.</p>` : html`<ul>${problems}</ul>`,
  );
  const { states } = status;
  const fact = (name: string, value: Html | string | number): Html => {
    return html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  };
  const nodeFacts = Object.entries(states).filter(([, count]) => count > 0);
  setHtml(
    parts.facts,
    html`${[
      fact("Revision", status.revision),
      fact("Last change", status.storedAtMs === 0 ? "–" : formatTime(status.storedAtMs).slice(0, 8)),
      fact("Services", status.serviceCount),
      fact("Endpoints", status.endpointCount),
      fact("EndpointSlices", status.sliceCount),
      fact("Nodes", status.nodeCount),
      ...nodeFacts.map(([name, count]) => fact(`Nodes ${name}`, html`<span class="${name}">${count}</span>`)),
      fact("Longest lag", status.maxLagMs === 0 ? "–" : formatMs(status.maxLagMs)),
      fact("Relays", status.relayCount),
      fact("Observers", status.observerCount),
      fact("Running for", formatMs(Math.max(0, status.nowMs - status.startedAtMs))),
    ]}`,
  );
  const points = [...state.convergence.values()].sort((a, b) => a[0] - b[0]);
  setHtml(
    parts.convergence,
    plot("Convergence of changes", [
      { name: "slowest node", style: "slowest", points: points.map(([, atMs, , max]) => [atMs, max] as const) },
      { name: "median node", style: "median", points: points.map(([, atMs, p50]) => [atMs, p50] as const) },
    ]),
  );
  setHtml(parts.lag, plot("Longest lag of a node", [{ name: "lag", style: "slowest", points: state.lag }]));
}

/** Elements that the overview fills. */
export interface OverviewParts {
  readonly warnings: Element;
  readonly facts: Element;
  readonly convergence: Element;
  readonly lag: Element;
}

function warnings({ status }: PageState): readonly Html[] {
  if (status === undefined) return [];
  const { states, isSynced, missingKinds } = status;
  const ofNodes = (count: number, text: string, state: string): Html | false =>
    count > 0 &&
    html`<li class="${state}"><a href="#/nodes?state=${state}">${count} ${count === 1 ? "node" : "nodes"}</a> ${text}</li>`;
  return [
    !isSynced && html`<li class="warning">Waiting for the first list of ${missingKinds.join(", ")}</li>`,
    ofNodes(states.failing, "cannot apply what the watcher sent", "failing"),
    ofNodes(
      states.behind,
      `${states.behind === 1 ? "has" : "have"} not applied a batch for more than a second`,
      "behind",
    ),
    ofNodes(states.absent, "without a connected proxy", "absent"),
    ofNodes(states.unknown, "connected under a name that the cluster does not have", "unknown"),
  ].filter((one) => one !== false);
}
