import type { LiveFrame } from "../live/live-rows.ts";
import { ChangesView } from "./changes-view.ts";
import { coalesceRuns } from "./coalesce-runs.ts";
import { byId, setHtml } from "./dom.ts";
import { fillExplainForm, serveExplainForm } from "./explain-view.ts";
import { html } from "./html.ts";
import { listServices } from "./inspect-client.ts";
import { NodesView } from "./nodes-view.ts";
import { showOverview } from "./overview.ts";
import { PageState } from "./page-state.ts";
import { ServicesView } from "./services-view.ts";
import { legend } from "./waterfall.ts";

// Script of the status page: follows the event stream of the watcher, and shows the section that the address names.
// `deploy/page/make.ts` bundles it, `statusPage` serves it, and a browser runs it.

const state = new PageState();
const sections = ["overview", "services", "nodes", "changes", "explain"] as const;
let section: (typeof sections)[number] = "overview";
let isPaused = false;

const overview = {
  warnings: byId("warnings"),
  facts: byId("facts"),
  convergence: byId("convergence"),
  lag: byId("lag"),
};
const servicesFilter = byId<HTMLInputElement>("services-filter");
const services = new ServicesView(byId("services-rows"), servicesFilter, byId("services-count"), byId("service"));
const nodesFilter = byId<HTMLInputElement>("nodes-filter");
const nodesState = byId<HTMLSelectElement>("nodes-state");
const nodes = new NodesView(byId("nodes-rows"), nodesFilter, nodesState, byId("nodes-count"));
const changes = new ChangesView(byId("changes-rows"), byId("change"));
const explainForm = byId<HTMLFormElement>("explain-form");

function show(): void {
  if (section === "overview") showOverview(state, overview);
  if (section === "services") services.show(state);
  if (section === "nodes") nodes.show(state);
  if (section === "changes") changes.show(state);
}

/** Shows the section of the address, and moves the focus to its heading if the user has followed a link. */
function navigate(isByUser: boolean): void {
  // The link that skips the navigation is not a section.
  if (!/^(#\/.*)?$/.test(location.hash)) return;
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/").map(decode);
  section = sections.find((one) => one === name) ?? "overview";
  const fields = new URLSearchParams(query);
  services.select(section === "services" && rest.length === 2 ? rest.join("/") : undefined);
  changes.select(section === "changes" && /^\d+$/.test(rest[0] ?? "") ? Number(rest[0]) : undefined);
  if (section === "nodes" && fields.has("state")) nodesState.value = fields.get("state") ?? "";
  if (section === "explain") fillExplainForm(explainForm, fields);
  if (section === "explain" || section === "services") {
    const names = [...state.nodes.keys()].slice(0, maxSuggestions);
    setHtml(byId("node-names"), html`${names.map((one) => html`<option value="${one}"></option>`)}`);
  }
  for (const one of sections) byId(one).hidden = one !== section;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${section}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  show();
  if (!isByUser) return;
  const heading = document.querySelector<HTMLElement>(`#${section} .detail:not([hidden]) h2`);
  (heading ?? byId(`${section}-title`)).focus();
}

/** Node names that a form suggests. */
const maxSuggestions = 1_000;

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function say(text: string): void {
  const element = byId("connection");
  if (element.textContent !== text) element.textContent = text;
}

/** Lists all Services; changes that arrive in the meantime are kept. */
const listAgain = coalesceRuns(async () => {
  state.beginServices();
  try {
    const { rows, revision } = await listServices();
    state.applyServices(rows, revision);
    if (!isPaused) show();
  } catch (error) {
    if (state.status?.isSynced === true) say(`Services: ${error instanceof Error ? error.message : String(error)}`);
    setTimeout(listAgain, retryMs);
  }
});

const retryMs = 5_000;

let events: EventSource | undefined;

/** Time without a frame after which the page reconnects: a proxy may keep a connection open whose watcher is gone. */
const silenceMs = 10_000;
let heardAtMs = 0;

function connect(): void {
  events?.close();
  // A hidden page costs the watcher nothing.
  if (document.visibilityState !== "visible") return;
  heardAtMs = performance.now();
  const stream = new EventSource("live");
  events = stream;
  stream.onmessage = ({ data }: MessageEvent<string>) => {
    heardAtMs = performance.now();
    const mustList = state.apply(JSON.parse(data) as LiveFrame);
    if (mustList) listAgain();
    say(isPaused ? "Paused" : "Live");
    if (!isPaused) show();
  };
  stream.onerror = () => {
    if (events !== stream) return;
    say(notConnected);
    // After an HTTP error, the browser does not try again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(explainRefusal, retryMs);
  };
}

const notConnected = "Not connected: the page shows the last known state";

setInterval(() => {
  if (document.visibilityState !== "visible" || performance.now() - heardAtMs < silenceMs) return;
  say(notConnected);
  connect();
}, 1_000);

/** Finds out why the event stream was refused, and tries again. */
async function explainRefusal(): Promise<void> {
  try {
    const response = await fetch("./", { cache: "no-store" });
    if (!response.ok) say((await response.text()).split("\n", 1)[0] ?? "");
  } catch {
    // Still not reachable.
  }
  connect();
}

byId("pause").addEventListener("click", ({ currentTarget }) => {
  isPaused = !isPaused;
  (currentTarget as HTMLElement).setAttribute("aria-pressed", String(isPaused));
  say(isPaused ? "Paused" : "Live");
  if (!isPaused) show();
});
servicesFilter.addEventListener("input", show);
nodesFilter.addEventListener("input", show);
nodesState.addEventListener("input", show);
serveExplainForm(explainForm, byId("explanation"));
setHtml(byId("legend"), legend());
addEventListener("hashchange", () => navigate(true));
document.addEventListener("visibilitychange", connect);
navigate(false);
connect();
