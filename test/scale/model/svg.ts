/** One line of a chart. */
export interface Series {
  readonly name: string;
  /** In the units of the axes, ascending by x, all positive. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

interface Axis {
  readonly from: number;
  readonly to: number;
  format(value: number): string;
}

const [width, height, left, right, top, bottom] = [760, 400, 90, 190, 40, 50];
const colors = ["#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#cf222e"];

/** Returns a chart with logarithmic axes as an SVG image. */
export function chart(title: string, xTitle: string, x: Axis, y: Axis, series: readonly Series[]): string {
  const place = (axis: Axis, value: number, start: number, end: number): number =>
    start + (Math.log(value / axis.from) / Math.log(axis.to / axis.from)) * (end - start);
  const atX = (value: number): string => place(x, value, left, width - right).toFixed(1);
  const atY = (value: number): string => place(y, value, height - bottom, top).toFixed(1);
  const text = (atX: number | string, atY: number | string, content: string, more = ""): string =>
    `<text x="${atX}" y="${atY}" ${more}>${content}</text>`;
  const parts = [text(left, 22, title, 'font-size="15" font-weight="600"')];
  for (const value of powersOfTen(y)) {
    parts.push(`<path d="M${left} ${atY(value)}H${width - right}" stroke="#d0d7de"/>`);
    parts.push(text(left - 8, Number(atY(value)) + 4, y.format(value), 'text-anchor="end"'));
  }
  for (const value of powersOfTen(x)) {
    parts.push(`<path d="M${atX(value)} ${top}V${height - bottom}" stroke="#d0d7de"/>`);
    parts.push(text(atX(value), height - bottom + 18, x.format(value), 'text-anchor="middle"'));
  }
  parts.push(text((left + width - right) / 2, height - 12, xTitle, 'text-anchor="middle"'));
  for (const [index, { name, points }] of series.entries()) {
    const color = colors[index % colors.length];
    const path = points.map(([px, py]) => `${atX(px)} ${atY(py)}`).join("L");
    parts.push(`<path d="M${path}" fill="none" stroke="${color}" stroke-width="2"/>`);
    const [lastX, lastY] = points.at(-1) ?? [x.to, y.from];
    parts.push(`<circle cx="${atX(lastX)}" cy="${atY(lastY)}" r="3" fill="${color}"/>`);
    parts.push(text(Number(atX(lastX)) + 8, Number(atY(lastY)) + 4, name, `fill="${color}"`));
  }
  const style = 'font-family="system-ui, sans-serif" font-size="12" fill="#57606a"';
  const background = `<rect width="${width}" height="${height}" fill="#ffffff"/>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" ${style}>`,
    `<title>${title}</title>`,
    background,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

function powersOfTen({ from, to }: Axis): number[] {
  const powers: number[] = [];
  for (let value = 10 ** Math.ceil(Math.log10(from)); value <= to * 1.001; value *= 10) powers.push(value);
  return powers;
}
