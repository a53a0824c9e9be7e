import type { LiveChange, StageName } from "../live/live-rows.ts";
import { formatMs } from "./format.ts";
import { type Html, html } from "./html.ts";

// The stages of a change as a bar and as a table. Separate, because `ChangesView` shows them for its rows and its
// details, and `main.ts` the legend of the colours.

/** Stages in their order. `receive` is from the watch event until the change is stored. */
const stageTexts: Readonly<Record<StageName | "receive", string>> = {
  receive: "watch event to store",
  send: "store to connection",
  transit: "network",
  wait: "wait on the node",
  render: "render",
  commit: "commit",
};

const names = Object.keys(stageTexts) as (keyof typeof stageTexts)[];

interface Stage {
  readonly name: keyof typeof stageTexts;
  readonly ms: number;
}

/** Returns the stages of the slowest node whose duration is known; empty until a node has applied the change. */
function stagesOf({ receivedAtMs, storedAtMs, slowest }: LiveChange): readonly Stage[] {
  if (slowest === undefined) return [];
  const receiveMs = receivedAtMs === 0 ? undefined : Math.max(0, storedAtMs - receivedAtMs);
  return names.flatMap((name) => {
    const ms = name === "receive" ? receiveMs : slowest.stages[name];
    return ms === undefined ? [] : [{ name, ms }];
  });
}

const width = 220;

/** Returns a bar with one part for each stage, in proportion to its duration. The text is for screen readers. */
export function waterfallBar(change: LiveChange): Html {
  const stages = stagesOf(change);
  if (stages.length === 0) return html`<span class="quiet">${change.sentCount === 0 ? "no node" : "waiting"}</span>`;
  const totalMs = stages.reduce((sum, { ms }) => sum + ms, 0) || 1;
  let x = 0;
  const parts = stages.map(({ name, ms }) => {
    const length = Math.max(1, (ms / totalMs) * (width - stages.length));
    const part = html`<rect class="${name}" x="${x.toFixed(1)}" y="0" width="${length.toFixed(1)}" height="14"><title>${stageTexts[name]}: ${formatMs(ms)}</title></rect>`;
    x += length;
    return part;
  });
  const label = stages.map(({ name, ms }) => `${stageTexts[name]} ${formatMs(ms)}`).join(", ");
  return html`<svg class="bar" viewBox="0 0 ${width} 14" role="img" aria-label="${label}">${parts}</svg>`;
}

/** Returns the list of colours. */
export function legend(): Html {
  return html`${names.map((name) => {
    return html`<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="${name}" width="12" height="12"/></svg>${stageTexts[name]}</li>`;
  })}`;
}

/** Returns a table of the stages: median and 99th percentile over all nodes, and the slowest node. */
export function stageTable(change: LiveChange): Html {
  const { stages, total, slowest } = change;
  const shown = stagesOf(change);
  if (slowest === undefined || total === undefined) return html`<p class="quiet">No node has applied it yet.</p>`;
  const row = (name: string, p50: number | undefined, p99: number | undefined, max: number | undefined): Html => {
    const cells = [p50, p99, max].map((ms) => html`<td>${ms === undefined ? "–" : formatMs(ms)}</td>`);
    return html`<tr><th scope="row">${name}</th>${cells}</tr>`;
  };
  return html`<table>
<thead><tr><th scope="col">Stage</th><th scope="col">Median</th><th scope="col">P99</th><th scope="col">Slowest: ${slowest.node}</th></tr></thead>
<tbody>${shown.map(({ name, ms }) => {
    const spread = name === "receive" ? ([ms, undefined] as const) : stages?.[name];
    return row(stageTexts[name], spread?.[0], spread?.[1], ms);
  })}
${row("total", total[0], total[1], slowest.totalMs)}</tbody></table>`;
}
