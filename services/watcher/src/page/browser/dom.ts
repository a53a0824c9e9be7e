import type { Html } from "./html.ts";

const policy = window.trustedTypes?.createPolicy("kpng", { createHTML: (text) => text });

/**
 * Replaces the content of an element, unless it is the same already. `main.ts` and the sections of the status page
 * change the document with the functions of this file. Separate, so that only one place assigns HTML.
 */
export function setHtml(element: Element, { text }: Html): void {
  if (shown.get(element) === text) return;
  shown.set(element, text);
  element.innerHTML = policy === undefined ? text : policy.createHTML(text);
}

const shown = new WeakMap<Element, string>();

/** Returns the element with this id in the document. Throws if the page has none. */
export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element "${id}"`);
  return element as E;
}

/**
 * Rows of a table body, each with a key. Only cells whose HTML changed are replaced, so that focus and selection stay
 * where they are, and the work is in proportion to the change.
 */
export class TableRows<T> {
  readonly #body: HTMLElement;
  readonly #keyOf: (row: T) => string;
  readonly #cellsOf: (row: T) => readonly Html[];
  readonly #rows = new Map<string, HTMLTableRowElement>();

  /** The first cell of each row is its header. */
  constructor(body: HTMLElement, keyOf: (row: T) => string, cellsOf: (row: T) => readonly Html[]) {
    this.#body = body;
    this.#keyOf = keyOf;
    this.#cellsOf = cellsOf;
  }

  /** Shows exactly these rows, in this order. */
  show(rows: readonly T[]): void {
    const keys = new Set(rows.map(this.#keyOf));
    for (const [key, element] of this.#rows) {
      if (keys.has(key)) continue;
      element.remove();
      this.#rows.delete(key);
    }
    let next = this.#body.firstElementChild;
    for (const row of rows) {
      const element = this.#update(this.#keyOf(row), this.#cellsOf(row));
      if (element === next) next = next.nextElementSibling;
      else this.#body.insertBefore(element, next);
    }
  }

  #update(key: string, cells: readonly Html[]): HTMLTableRowElement {
    let row = this.#rows.get(key);
    if (row === undefined) {
      row = document.createElement("tr");
      for (const index of cells.keys()) row.append(index === 0 ? rowHeader() : document.createElement("td"));
      this.#rows.set(key, row);
    }
    for (const [index, cell] of cells.entries()) {
      const element = row.children[index];
      if (element !== undefined) setHtml(element, cell);
    }
    return row;
  }
}

function rowHeader(): HTMLElement {
  const header = document.createElement("th");
  header.scope = "row";
  return header;
}
