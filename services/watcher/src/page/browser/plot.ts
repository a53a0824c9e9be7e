import { formatMs, formatTime } from "./format.ts";
import { type Html, html } from "./html.ts";

/** A line of a plot. */
export interface Line {
  readonly name: string;
  /** Class of the style sheet, which gives the colour. */
  readonly style: string;
  /** Times in milliseconds since 1970, ascending, and durations in milliseconds. */
  readonly points: readonly (readonly [atMs: number, ms: number])[];
}

const width = 900;
const height = 180;
const left = 70;
const bottom = 22;
/** Maximum number of points of a drawn line. If there are more, neighbours are merged to the largest of them. */
const maxPoints = 300;

/**
 * Returns a plot of durations over time, with a sentence that says the same. Pure. `showOverview` shows two of them.
 * Separate from it, because only this file knows axes.
 */
export function plot(title: string, lines: readonly Line[]): Html {
  const points = lines.flatMap((line) => line.points);
  const [first] = points;
  if (first === undefined) return html`<p class="quiet">Nothing yet.</p>`;
  let [fromMs, toMs, highest] = [first[0], first[0], 0];
  for (const [atMs, ms] of points) {
    fromMs = Math.min(fromMs, atMs);
    toMs = Math.max(toMs, atMs);
    highest = Math.max(highest, ms);
  }
  const top = niceAbove(highest);
  const x = (atMs: number): number => left + ((atMs - fromMs) / Math.max(1, toMs - fromMs)) * (width - left - 10);
  const y = (ms: number): number => height - bottom - (ms / top) * (height - bottom - 12);
  const summary = lines.map(({ name, points: own }) => `${name}: ${formatMs(own.at(-1)?.[1] ?? 0)} now`);
  const label = `${title}. ${summary.join(", ")}; at most ${formatMs(highest)} since ${formatTime(fromMs)}.`;
  return html`<figure>
<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">
<path class="axis" d="M${left} 8V${height - bottom}H${width - 10}M${left} ${y(top)}H${width - 10}M${left} ${y(top / 2)}H${width - 10}"/>
<text class="mark" x="${left - 6}" y="${y(top) + 4}" text-anchor="end">${formatMs(top)}</text>
<text class="mark" x="${left - 6}" y="${y(top / 2) + 4}" text-anchor="end">${formatMs(top / 2)}</text>
<text class="mark" x="${left - 6}" y="${y(0) + 4}" text-anchor="end">0</text>
<text class="mark" x="${left}" y="${height - 6}">${formatTime(fromMs).slice(0, 8)}</text>
<text class="mark" x="${width - 10}" y="${height - 6}" text-anchor="end">${formatTime(toMs).slice(0, 8)}</text>
${lines.map(({ style, points: own }) => {
  const drawn = merge(own).map(([atMs, ms]) => `${x(atMs).toFixed(1)},${y(ms).toFixed(1)}`);
  return html`<polyline class="line ${style}" points="${drawn.join(" ")}"/>`;
})}
</svg>
<figcaption>${label}</figcaption>
</figure>`;
}

function merge(points: Line["points"]): Line["points"] {
  const size = Math.ceil(points.length / maxPoints);
  if (size <= 1) return points;
  const merged: (readonly [number, number])[] = [];
  for (let start = 0; start < points.length; start += size) {
    const group = points.slice(start, start + size);
    merged.push([group[0]?.[0] ?? 0, Math.max(...group.map(([, ms]) => ms))]);
  }
  return merged;
}

/** Returns the smallest of 1, 2, 5, 10, 20, … that is not below; at least 1. */
function niceAbove(value: number): number {
  for (let unit = 1; ; unit *= 10) {
    for (const step of [1, 2, 5]) if (step * unit >= value) return step * unit;
  }
}
