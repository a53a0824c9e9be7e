import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const binary = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((path) => existsSync(path));

/** Why no browser can be started; undefined if one can. */
export const whyNoChromium = binary === undefined ? "chromium is not installed" : undefined;

/**
 * A headless Chromium with one page, driven by the Chrome DevTools Protocol. Everything that the page reports as an
 * error is collected in {@link errors}.
 */
export class Chromium {
  readonly errors: string[] = [];
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #end: () => Promise<void>;
  #lastId = 0;

  private constructor(socket: WebSocket, end: () => Promise<void>) {
    this.#socket = socket;
    this.#end = end;
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(String(data)) as Message));
  }

  static async start(): Promise<Chromium> {
    const folder = mkdtempSync(join(tmpdir(), "kpng-chromium-"));
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
    const more = ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"];
    const child = spawn(
      binary ?? "chromium",
      [...flags, ...more, "--remote-debugging-port=0", `--user-data-dir=${folder}`, "about:blank"],
      { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: folder } },
    );
    const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
    const end = async (): Promise<void> => {
      child.kill("SIGKILL");
      await ended;
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    };
    const output: string[] = [];
    for await (const line of createInterface(child.stderr)) {
      output.push(line);
      const address = /^DevTools listening on ws:\/\/([^/]+)/.exec(line)?.[1];
      if (address === undefined) continue;
      child.stderr.resume();
      const pages = (await (await fetch(`http://${address}/json/list`)).json()) as { webSocketDebuggerUrl: string }[];
      const socket = new WebSocket(pages[0]?.webSocketDebuggerUrl ?? "");
      await once(socket, "open");
      const browser = new Chromium(socket, end);
      for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${domain}.enable`);
      return browser;
    }
    await end();
    throw new Error(`chromium did not start:\n${output.join("\n")}`);
  }

  async stop(): Promise<void> {
    this.#socket.close();
    await this.#end();
  }

  /** Calls a method of the protocol. */
  send<T = unknown>(method: string, params: object = {}): Promise<T> {
    this.#lastId += 1;
    const answer = Promise.withResolvers<unknown>();
    this.#waiting.set(this.#lastId, answer);
    this.#socket.send(JSON.stringify({ id: this.#lastId, method, params }));
    return answer.promise as Promise<T>;
  }

  #receive({ id, result, error, method = "", params = {} }: Message): void {
    if (id !== undefined) {
      const answer = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) answer?.resolve(result);
      else answer?.reject(new Error(error.message));
    }
    const isError =
      /^(Runtime\.exceptionThrown|Page\.javascriptDialogOpening)$/.test(method) ||
      (method === "Log.entryAdded" && params.entry?.level === "error") ||
      (method === "Runtime.consoleAPICalled" && params.type === "error");
    if (isError) this.errors.push(JSON.stringify(params));
  }

  /** Opens an address, in a new document. */
  async open(url: string): Promise<void> {
    await this.send("Page.navigate", { url: "about:blank" });
    await this.send("Page.navigate", { url });
  }

  /** Returns the JSON value of an expression in the page. */
  async evaluate<T>(expression: string): Promise<T> {
    const options = { expression, returnByValue: true, awaitPromise: true };
    const answer = await this.send<{ result: { value: T }; exceptionDetails?: unknown }>("Runtime.evaluate", options);
    if (answer.exceptionDetails !== undefined) throw new Error(JSON.stringify(answer.exceptionDetails));
    return answer.result.value;
  }

  /** Returns the visible text of the first element that matches; "" without one. */
  text(selector: string): Promise<string> {
    return this.evaluate(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);
  }

  /** Presses a key, as a user does. */
  async press(key: "Tab" | "Enter"): Promise<void> {
    const code = { Tab: 9, Enter: 13 }[key];
    const event = { key, code: key, windowsVirtualKeyCode: code };
    const text = key === "Enter" ? { text: "\r" } : {};
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** Types text into the element that has the focus. */
  async type(text: string): Promise<void> {
    await this.send("Input.insertText", { text });
  }

  async setColorScheme(value: "light" | "dark"): Promise<void> {
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  }
}

interface Message {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
  readonly method?: string;
  readonly params?: { readonly entry?: { readonly level?: string }; readonly type?: string };
}
