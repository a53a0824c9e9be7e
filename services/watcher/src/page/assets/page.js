// Script of the status page, served unchanged. It shows rows of the inspect API (proto/kpng/inspect/v1), which it
// watches over Connect with JSON. Strings from the cluster only become text nodes and attributes, never HTML.

/**
 * Rows as protobuf JSON, limited to the fields that the page shows. Fields with default values are absent.
 *
 * @typedef {{ name?: string, protocol?: string, port?: number, nodePort?: number }} Port
 * @typedef {{ namespace?: string, name?: string, type?: string, isHeadless?: boolean, clusterIps?: string[],
 *   externalIps?: string[], loadBalancerIps?: string[], ports?: Port[], internalTrafficPolicy?: string,
 *   externalTrafficPolicy?: string, endpoints?: { ready?: number, terminating?: number, notReady?: number } }} Service
 * @typedef {{ slice?: string, addresses?: string[], pod?: string, node?: string, zone?: string, isReady?: boolean,
 *   isServing?: boolean, isTerminating?: boolean, hintedZones?: string[], hintedNodes?: string[] }} Endpoint
 * @typedef {{ name?: string, zone?: string, state?: string, subscriberCount?: number, appliedRevision?: string,
 *   unappliedSince?: string, programs?: string[], error?: string }} Node
 * @typedef {{ revision?: string, objects?: { kind?: string, key?: string, isDeleted?: boolean }[],
 *   objectCount?: string, isFirstList?: boolean, storedAt?: string, toldCount?: number, appliedCount?: number,
 *   failedCount?: number, lostCount?: number, stages?: { total?: { p50?: string, max?: string } },
 *   slowest?: { node?: string }, failures?: { node?: string, error?: string }[] }} Change
 * @typedef {{ severity?: string, subject?: string, text?: string, remedy?: string }} Finding
 * @typedef {{ revision?: string, storedAt?: string, startedAt?: string, serviceCount?: number, sliceCount?: number,
 *   endpointCount?: number, nodeCount?: number, version?: string, clusterId?: string }} Status
 */

/**
 * A section of the page.
 *
 * @typedef {string | number | { text: string | number, class?: string, href?: string }} Cell
 * @typedef {{ key: string, cells: Cell[] }} Row
 * @typedef {{ method: string, request: object, list: List, keyOf: (row: any) => string }} Watch
 * @typedef {"services" | "endpoints" | "nodes" | "changes"} List
 * @typedef {{ title: string, watches: Watch[], columns: string[], rows: () => Row[], facts?: () => [string, Cell][] }} View
 */

/** Maximum number of rows that a table shows; a browser would be slow with thousands of rows. */
const maxShown = 200;
/** Maximum number of changes to keep; the watcher keeps the same number. */
const maxChanges = 1_000;
/** Interval between two requests for the status, and delay before a stream is opened again, in milliseconds. */
const periodMs = 2_000;
/**
 * Minimum time between two updates of the document, in milliseconds. A stream may bring 50 messages a second, and with
 * 20 000 Services an update takes tens of milliseconds, in which the page does not react.
 */
const updateMs = 500;

const state = {
  /** @type {Status} */
  status: {},
  /** @type {{ findings?: Finding[], errorCount?: number, warningCount?: number }} At most 1 000 findings, and how many there are. */
  problems: {},
  /** Current time of the watcher, in milliseconds since 1970. */
  nowMs: 0,
  /** @type {Map<string, Service>} */
  services: new Map(),
  /** @type {Map<string, Endpoint>} */
  endpoints: new Map(),
  /** @type {Map<string, Node>} */
  nodes: new Map(),
  /** @type {Map<string, Change>} */
  changes: new Map(),
};

// Requests

/**
 * Sends a request to a method of the inspect API. Errors: Error with the watcher's message.
 *
 * @param {string} method
 * @param {string} type
 * @param {BodyInit} body
 * @param {AbortSignal} signal
 */
async function send(method, type, body, signal) {
  const url = `kpng.inspect.v1.InspectService/${method}`;
  const response = await fetch(url, { method: "POST", headers: { "content-type": type }, body, signal });
  if (response.ok) return response;
  throw new Error((await response.text()).trim().slice(0, 300) || `HTTP status ${response.status}`);
}

/**
 * Yields the messages of a streaming method. Each message is preceded by one byte of flags and four bytes of length.
 * The last message, with flag 2, contains the error of the stream.
 *
 * @param {Watch} watched
 * @param {AbortSignal} signal
 */
async function* messagesOf({ method, request }, signal) {
  const text = new TextEncoder().encode(JSON.stringify(request));
  const body = new Uint8Array(5 + text.length);
  new DataView(body.buffer).setUint32(1, text.length);
  body.set(text, 5);
  const response = await send(method, "application/connect+json", body, signal);
  const reader = response.body?.getReader();
  let buffer = new Uint8Array();
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { done: true };
    if (done || value === undefined) throw new Error("the stream ended");
    const more = new Uint8Array(buffer.length + value.length);
    more.set(buffer);
    more.set(value, buffer.length);
    buffer = more;
    while (buffer.length >= 5) {
      const end = 5 + new DataView(buffer.buffer, buffer.byteOffset).getUint32(1);
      if (buffer.length < end) break;
      const message = JSON.parse(new TextDecoder().decode(buffer.subarray(5, end)));
      if (((buffer[0] ?? 0) & 2) !== 0) throw new Error(message.error?.message ?? "the watcher ended the stream");
      yield message;
      buffer = buffer.subarray(end);
    }
  }
}

/**
 * Keeps a list in `state` current. Opens the stream again when it ends, and keeps the old rows until the new stream
 * sends rows.
 *
 * @param {Watch} watched
 * @param {AbortSignal} signal
 */
async function follow(watched, signal) {
  const { list, keyOf } = watched;
  while (!signal.aborted) {
    try {
      const rows = new Map();
      for await (const message of messagesOf(watched, signal)) {
        for (const row of message[list] ?? []) rows.set(keyOf(row), row);
        for (const key of message.deleted ?? []) rows.delete(key);
        if (message.isComplete !== true) continue;
        state[list] = rows;
        loading.delete(list);
        showSoon();
      }
    } catch (error) {
      showFailure(error, signal);
    }
    await pauseMs(periodMs);
  }
}

/**
 * Keeps the status current. When the watcher answers again, all streams are reopened, because a stream that hangs
 * behind a proxy does not end by itself.
 *
 * @param {AbortSignal} signal
 */
async function followStatus(signal) {
  for (let hasFailed = false; !signal.aborted; await pauseMs(periodMs)) {
    try {
      const response = await send("GetStatus", "application/json", "{}", signal);
      state.status = await response.json();
      // Rows of a broken source look like current ones, so every section asks for the problems of the watcher itself.
      const about = view === problemsView ? "{}" : '{"object":"watcher"}';
      const problems = await (await send("ListFindings", "application/json", about, signal)).json();
      if (view === problemsView) state.problems = problems;
      state.nowMs = Date.parse(response.headers.get("date") ?? "");
      if (hasFailed) start();
      const isBroken = (/** @type {Finding} */ one) =>
        one.subject === "watcher" && wordOf(one.severity, "FINDING_SEVERITY") === "error";
      setText("connection", problems.findings?.some(isBroken) ? "Live, but this watcher has problems" : "Live");
      show();
    } catch (error) {
      hasFailed = true;
      showFailure(error, signal);
    }
  }
}

/** @type {(error: unknown, signal: AbortSignal) => void} */
function showFailure(error, signal) {
  if (!signal.aborted) setText("connection", `Not connected: ${error instanceof Error ? error.message : error}`);
}

/** @param {number} ms */
function pauseMs(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

// Sections

const keyOfService = (/** @type {Service} */ { namespace = "", name = "" }) => `${namespace}/${name}`;
/** @type {Watch} */
const watchServices = { method: "WatchServices", request: {}, list: "services", keyOf: keyOfService };
/** @type {Watch} */
const watchNodes = { method: "WatchNodes", request: {}, list: "nodes", keyOf: ({ name }) => name };
/** @type {Watch} */
const watchChanges = { method: "WatchChanges", request: {}, list: "changes", keyOf: ({ revision }) => revision };

/** @type {View} */
const problemsView = {
  title: "Problems",
  watches: [],
  columns: ["Object", "Problem", "What to do"],
  rows: () =>
    (state.problems.findings ?? []).map(({ severity, subject = "", text = "", remedy = "" }) => {
      const word = wordOf(severity, "FINDING_SEVERITY");
      const cells = [subjectCell(subject), { text: `${word}: ${text}`, class: word }, remedy];
      return { key: `${subject} ${text}`, cells };
    }),
  facts: () => {
    const { status, nowMs, problems } = state;
    return [
      ["Errors", { text: problems.errorCount ?? 0, class: problems.errorCount === undefined ? "good" : "error" }],
      ["Warnings", problems.warningCount ?? 0],
      ["Revision", status.revision ?? 0],
      ["Last change", formatTime(status.storedAt)],
      ["Services", status.serviceCount ?? 0],
      ["Endpoints", status.endpointCount ?? 0],
      ["EndpointSlices", status.sliceCount ?? 0],
      ["Nodes", status.nodeCount ?? 0],
      ["Running for", status.startedAt === undefined ? "–" : formatMs(nowMs - Date.parse(status.startedAt))],
      ["Version", status.version ?? "–"],
      ["Cluster", status.clusterId ?? "–"],
    ];
  },
};

/** @type {(subject: string) => Cell} Shows the object of a finding, with a link to its view if it has one. */
function subjectCell(subject) {
  const [kind = "", namespace = "", name = ""] = subject.split("/");
  const text = subject.replace("/", " ");
  if (kind === "service") return linkTo({ namespace, name }, text);
  return kind === "node" ? { text, href: "#/nodes" } : text;
}

/** @type {View} */
const servicesView = {
  title: "Services",
  watches: [watchServices],
  columns: ["Service", "Type", "Addresses", "Ports", "Ready", "Terminating", "Not ready"],
  rows: () => Array.from(state.services.values(), serviceRow).sort((a, b) => (a.key < b.key ? -1 : 1)),
};

/** Rows of the Services that have not changed, which are nearly all. @type {WeakMap<Service, Row>} */
const serviceRows = new WeakMap();

/** @type {(service: Service) => Row} */
function serviceRow(service) {
  const known = serviceRows.get(service);
  if (known !== undefined) return known;
  const key = keyOfService(service);
  const { ready = 0, terminating = 0, notReady = 0 } = service.endpoints ?? {};
  const readyCell = { text: ready, class: ready === 0 ? "warning" : "good" };
  const texts = [typeOf(service), addressesOf(service), portsOf(service)];
  const row = { key, cells: [linkTo(service, key), ...texts, readyCell, terminating, notReady] };
  serviceRows.set(service, row);
  return row;
}

/**
 * @param {string} namespace
 * @param {string} name
 * @returns {View}
 */
function serviceView(namespace, name) {
  const watchOne = { ...watchServices, request: { namespace, name } };
  const keyOf = (/** @type {Endpoint} */ { slice = "", addresses = [] }) =>
    `${namespace}/${name}/${slice}/${addresses[0]}`;
  return {
    title: `${namespace}/${name}`,
    watches: [watchOne, { method: "WatchEndpoints", request: { namespace, service: name }, list: "endpoints", keyOf }],
    columns: ["Addresses", "Pod", "Node", "Zone", "Condition", "Hints"],
    rows: () =>
      Array.from(state.endpoints, ([key, { addresses = [], pod, node, zone, hintedZones, hintedNodes, ...one }]) => {
        const hints = [...(hintedZones ?? []), ...(hintedNodes ?? [])].join(", ");
        const word = one.isTerminating === true ? "terminating" : "not ready";
        const condition = one.isReady === true ? "ready" : `${word}${one.isServing === true ? ", serving" : ""}`;
        const conditionCell = { text: condition, class: one.isReady === true ? "good" : "warning" };
        const where = [addresses.join(", "), pod ?? "–", node ?? "–", zone ?? "–"];
        return { key, cells: [...where, conditionCell, hints || "–"] };
      }),
    facts: () => {
      const service = state.services.get(`${namespace}/${name}`);
      if (service === undefined) return [["Service", "not found"]];
      return [
        ["Type", typeOf(service)],
        ["Addresses", addressesOf(service)],
        ["Ports", portsOf(service)],
        ["Internal traffic policy", wordOf(service.internalTrafficPolicy, "TRAFFIC_POLICY")],
        ["External traffic policy", wordOf(service.externalTrafficPolicy, "TRAFFIC_POLICY")],
      ];
    },
  };
}

const stateOrder = ["failing", "behind", "unknown", "absent", "received", "current"];

/** @type {View} */
const nodesView = {
  title: "Nodes",
  watches: [watchNodes],
  columns: ["Node", "State", "Lag", "Applied", "Zone", "Program", "Streams", "Error"],
  rows: () => {
    const rows = Array.from(state.nodes.values(), (node) => {
      const { name = "", zone = "", programs = [], error = "", subscriberCount = 0, unappliedSince } = node;
      const word = wordOf(node.state, "APPLY_STATE");
      const style = word === "failing" ? "error" : /current|received/.test(word) ? "good" : "warning";
      // How long the oldest pending change has waited to be applied.
      const lagMs = unappliedSince === undefined ? 0 : state.nowMs - Date.parse(unappliedSince);
      const applied = subscriberCount === 0 ? "–" : (node.appliedRevision ?? 0);
      return {
        key: name,
        rank: stateOrder.indexOf(word),
        cells: [
          ...[name, { text: word, class: style }, lagMs < 1_000 ? "–" : formatMs(lagMs), applied, zone || "–"],
          ...[programs.join(", ") || "–", subscriberCount, { text: error, class: "error" }],
        ],
      };
    });
    return rows.sort((a, b) => a.rank - b.rank || a.key.localeCompare(b.key, "en", { numeric: true }));
  },
};

/** @type {View} */
const changesView = {
  title: "Changes",
  watches: [watchChanges],
  columns: ["Revision", "Time", "Objects", "Applied", "Median", "Slowest", "Slowest node", "Failures"],
  rows: () => {
    const changes = [...state.changes.values()].sort((a, b) => Number(b.revision) - Number(a.revision));
    for (const { revision = "" } of changes.slice(maxChanges)) state.changes.delete(revision);
    return changes.slice(0, maxChanges).map(({ revision = "", stages, slowest, failures = [], ...change }) => {
      const failed = failures.map(({ node, error }) => `${node}: ${error}`).join("; ");
      const counts = [
        `${change.appliedCount ?? 0} of ${change.toldCount ?? 0}`,
        ...(change.failedCount === undefined ? [] : [`${change.failedCount} failed`]),
        ...(change.lostCount === undefined ? [] : [`${change.lostCount} lost`]),
      ].join(", ");
      const times = [stages?.total?.p50, stages?.total?.max].map(formatDuration);
      const texts = [revision, formatTime(change.storedAt), objectsOf(change), counts, ...times, slowest?.node ?? "–"];
      return { key: revision, cells: [...texts, { text: failed, class: "error" }] };
    });
  },
};

/** @param {Change} change */
function objectsOf({ objects = [], objectCount, isFirstList }) {
  if (isFirstList === true) return `first list of ${objectCount ?? 0} objects`;
  const shown = objects.slice(0, 5).map(({ kind, key, isDeleted }) => {
    return `${isDeleted === true ? "deleted " : ""}${wordOf(kind, "OBJECT_KIND")} ${key}`;
  });
  const more = Number(objectCount ?? 0) - shown.length;
  return `${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** @param {Service} service */
function typeOf({ isHeadless, type }) {
  return isHeadless === true ? "headless" : (type ?? "–");
}

/** @param {Service} service */
function addressesOf({ clusterIps = [], externalIps = [], loadBalancerIps = [] }) {
  return [...clusterIps, ...externalIps, ...loadBalancerIps].join(", ") || "–";
}

/** @param {Service} service */
function portsOf({ ports = [] }) {
  const texts = ports.map(({ name = "", protocol, port, nodePort }) => {
    const text = `${name === "" ? "" : `${name}:`}${port}/${wordOf(protocol, "PROTOCOL").toUpperCase()}`;
    return nodePort === undefined ? text : `${text} (node port ${nodePort})`;
  });
  return texts.join(", ") || "–";
}

/** @type {(service: Service, text: string) => Cell} */
function linkTo({ namespace = "", name = "" }, text) {
  return { text, href: `#/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` };
}

// Texts

/**
 * Returns the word for an enum value. *Shape:* `APPLY_STATE_CURRENT` → `current`.
 *
 * @param {string | undefined} value
 * @param {string} prefix
 */
function wordOf(value, prefix) {
  return (value ?? "").replace(`${prefix}_`, "").toLowerCase().replaceAll("_", " ");
}

/**
 * *Shape:* `240 µs`, `31.4 ms`, `1.2 s`, `4 m 10 s`, `3 h 2 m`.
 *
 * @param {number} ms
 */
function formatMs(ms) {
  if (ms < 1) return `${Math.round(ms * 1_000)} µs`;
  if (ms < 1_000) return `${ms.toFixed(1)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} m`;
}

/** @param {string | undefined} duration In seconds. *Shape:* `0.0314s`. */
function formatDuration(duration) {
  return duration === undefined ? "–" : formatMs(Number.parseFloat(duration) * 1_000);
}

/** @param {string | undefined} time Result in the time zone of the browser. *Shape:* `12:03:44.120`. */
function formatTime(time) {
  if (time === undefined) return "–";
  const date = new Date(time);
  return `${date.toTimeString().slice(0, 8)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

// Document

/**
 * @param {string} tag
 * @param {Readonly<Record<string, string>>} attributes
 * @param {...(string | Element)} children
 */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @param {Cell} cell */
function contentOf(cell) {
  if (typeof cell !== "object") return String(cell);
  const { text, href, class: style = "" } = cell;
  return href === undefined ? el("span", { class: style }, String(text)) : el("a", { href }, String(text));
}

/** @type {(row: Row, text: string) => boolean} True if the row contains `text`, which is in lower case. */
function contains({ cells }, text) {
  const texts = cells.map((cell) => (typeof cell === "object" ? cell.text : cell));
  return text === "" || texts.join(" ").toLowerCase().includes(text);
}

/** @param {string} id */
function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element "${id}"`);
  return element;
}

/** @type {(id: string, text: string) => void} Changes the text only if it differs: some elements are live regions. */
function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

/** Rows of the table by key. @type {Map<string, Element>} */
const shownRows = new Map();

/**
 * Shows exactly these rows, in this order. Unchanged cells stay, and keep their focus and selection.
 *
 * @param {Row[]} rows
 */
function showRows(rows) {
  const body = byId("rows");
  const keys = new Set(rows.map(({ key }) => key));
  for (const [key, element] of shownRows) {
    if (keys.has(key)) continue;
    element.remove();
    shownRows.delete(key);
  }
  let next = body.firstElementChild;
  for (const { key, cells } of rows) {
    const [first = "", ...others] = cells.map(contentOf);
    const fresh = [el("th", { scope: "row" }, first), ...others.map((cell) => el("td", {}, cell))];
    const row = shownRows.get(key) ?? el("tr", {}, ...fresh);
    shownRows.set(key, row);
    for (const [index, cell] of fresh.entries()) {
      const old = row.children[index];
      if (old !== undefined && !old.isEqualNode(cell)) old.replaceWith(cell);
    }
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
}

let view = problemsView;
let isPaused = false;
let running = new AbortController();
const filter = /** @type {HTMLInputElement} */ (byId("filter"));

/** Lists of the current section whose first rows have not arrived. @type {Set<List>} */
const loading = new Set();
/** @type {number | undefined} */
let updateTimer;
let updatedAtMs = 0;

/** Shows the state, at most every {@link updateMs}. */
function showSoon() {
  updateTimer ??= setTimeout(show, Math.max(0, updatedAtMs + updateMs - performance.now()));
}

/** Shows the state in the current section. */
function show() {
  clearTimeout(updateTimer);
  updateTimer = undefined;
  if (isPaused) return;
  const rows = view.rows();
  const text = filter.value.trim().toLowerCase();
  const matching = rows.filter((row) => contains(row, text));
  showRows(matching.slice(0, maxShown));
  const none = loading.size === 0 ? "none" : "loading…";
  const all = rows.length === 0 ? none : `${rows.length} rows`;
  const counts = matching.length === rows.length ? all : `${matching.length} of ${rows.length} rows`;
  setText("count", matching.length > maxShown ? `${counts}; the first ${maxShown} are shown` : counts);
  const facts = (view.facts?.() ?? []).map(([name, value]) => {
    return el("div", {}, el("dt", {}, name), el("dd", {}, contentOf(value)));
  });
  const list = el("dl", { id: "facts" }, ...facts);
  if (!byId("facts").isEqualNode(list)) byId("facts").replaceWith(list);
  updatedAtMs = performance.now();
}

/** Opens the streams of the current section. A hidden or paused page has no streams. */
function start() {
  running.abort();
  running = new AbortController();
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) setText("connection", "Paused");
  if (isPaused || document.visibilityState === "hidden") return;
  setText("connection", "Connecting…");
  void followStatus(running.signal);
  for (const watched of view.watches) void follow(watched, running.signal);
}

/** @param {string} text a part of the URL, which a link elsewhere may have garbled */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Shows the section that the URL names. */
function open() {
  const [section = "", namespace = "", name = ""] = location.hash.replace(/^#\//, "").split("/").map(decode);
  const views = { services: servicesView, nodes: nodesView, changes: changesView };
  view =
    name === "" ? (views[/** @type {keyof typeof views} */ (section)] ?? problemsView) : serviceView(namespace, name);
  Object.assign(state, { services: new Map(), endpoints: new Map(), nodes: new Map(), changes: new Map() });
  loading.clear();
  for (const { list } of view.watches) loading.add(list);
  filter.value = "";
  isPaused = false;
  setText("title", view.title);
  document.title = `${view.title} – kpng watcher`;
  byId("head").replaceChildren(el("tr", {}, ...view.columns.map((column) => el("th", { scope: "col" }, column))));
  showRows([]);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${section || "problems"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  start();
}

addEventListener("hashchange", () => {
  open();
  byId("title").focus();
});
document.addEventListener("visibilitychange", start);
filter.addEventListener("input", show);
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  start();
});
open();
