import { setHtml } from "./dom.ts";
import { type Html, html } from "./html.ts";
import { explainPacket } from "./inspect-client.ts";
import { type Explanation, wordOf } from "./inspect-rows.ts";
import { decisionCells } from "./services-view.ts";

/**
 * Makes the form ask the watcher what a node does with a packet, and show the answer in `output`. The form is the
 * section "explain" of the status page; `main.ts` calls both functions. Each section has a file of its own.
 */
export function serveExplainForm(form: HTMLFormElement, output: Element): void {
  let asked = 0;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asked += 1;
    const mine = asked;
    const values = new FormData(form);
    const text = (name: string): string => String(values.get(name) ?? "").trim();
    setHtml(output, html`<p class="quiet">Asking…</p>`);
    explainPacket({
      nodeName: text("node"),
      sourceAddress: text("from"),
      destination: text("destination"),
      port: Number(text("port") || 0),
      protocol: text("protocol") === "" ? "PROTOCOL_UNSPECIFIED" : `PROTOCOL_${text("protocol")}`,
    })
      .then(formatExplanation, (error: unknown) => {
        return html`<p class="error">${error instanceof Error ? error.message : String(error)}</p>`;
      })
      .then((answer) => {
        if (mine === asked) setHtml(output, answer);
      });
  });
}

/** Fills fields of the form from the address of the page. */
export function fillExplainForm(form: HTMLFormElement, fields: URLSearchParams): void {
  for (const name of ["node", "destination"]) {
    const value = fields.get(name);
    const input = form.elements.namedItem(name);
    if (value !== null && input instanceof HTMLInputElement) input.value = value;
  }
}

function formatExplanation(answer: Explanation): Html {
  const verdict = wordOf(answer.verdict, "VERDICT");
  const { endpoints = [], steps = [], assumptions = [] } = answer;
  const address = answer.destinationAddress ?? "";
  const target = `${address.includes(":") ? `[${address}]` : address}:${answer.port ?? 0}/${wordOf(answer.protocol, "PROTOCOL").toUpperCase()}`;
  return html`<h2>${target}: <span class="${verdict}">${verdict}</span></h2>
<table>
<thead><tr><th scope="col">Step</th><th scope="col">Reason</th></tr></thead>
<tbody>${steps.map(({ stage, text }) => html`<tr><th scope="row">${wordOf(stage, "STAGE")}</th><td>${text}</td></tr>`)}</tbody>
</table>
${
  endpoints.length > 0 &&
  html`<h3>Endpoints</h3><table>
<thead><tr><th scope="col">Endpoint</th><th scope="col">Port</th><th scope="col">Pod</th><th scope="col">Its node</th><th scope="col">Used</th><th scope="col">Reason</th></tr></thead>
<tbody>${endpoints.map(decisionCells)}</tbody></table>`
}
<h3>Assumptions</h3>
<ul>${assumptions.map((text) => html`<li>${text}</li>`)}</ul>`;
}
