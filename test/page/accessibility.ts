// Checks of accessibility that run inside the page.

/** Expression: texts whose contrast with their background is below 4.5, as WCAG 2.2 asks for level AA. */
export const lowContrast = `(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backgroundOf = (element) => {
    for (let one = element; one !== null; one = one.parentElement) {
      const { backgroundColor } = getComputedStyle(one);
      if (channels(backgroundColor)[3] !== 0) return backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim() !== "");
    if (!hasText || element.closest("noscript") !== null || element.offsetParent === null) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(backgroundOf(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(element.innerText + ": " + ratio.toFixed(2));
  }
  return low;
})()`;

/** Expression: fields, links, buttons and tables without a name or header; and too many main headings. */
export const withoutNames = `(() => {
  const faults = [];
  const isShown = (element) => element.offsetParent !== null;
  for (const field of document.querySelectorAll("input, select")) {
    if (isShown(field) && field.closest("label") === null) faults.push(field.outerHTML);
  }
  for (const one of document.querySelectorAll("a, button")) if (one.textContent.trim() === "") faults.push(one.outerHTML);
  for (const table of document.querySelectorAll("table")) {
    if (table.querySelectorAll("thead th[scope=col]").length === 0) faults.push(table.outerHTML);
  }
  for (const row of document.querySelectorAll("tbody tr")) if (row.querySelector("th[scope=row]") === null) faults.push(row.outerHTML);
  if ([...document.querySelectorAll("h1")].filter(isShown).length !== 1) faults.push("not one h1");
  for (const landmark of ["header", "nav", "main"]) if (document.querySelectorAll(landmark).length !== 1) faults.push(landmark);
  return faults;
})()`;
