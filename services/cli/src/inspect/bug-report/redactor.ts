import { isIP } from "node:net";
import type { JsonValue } from "@bufbuild/protobuf";

/** Names that every cluster has, and that say nothing about it. */
const common = new Set(["", "default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "kube-dns"]);

/** Addresses that say nothing about a cluster. */
const commonAddresses = new Set(["0.0.0.0", "::", "127.0.0.1", "::1"]);

/**
 * Replaces names and IP addresses by made-up ones, the same for the same name everywhere: `service-1`, `10.0.0.7`. So a
 * report still shows what belongs together, but neither names nor the networks in which addresses lie.
 *
 * `kpng bug-report --redact` passes everything through it. Names must be added before texts are redacted.
 */
export class Redactor {
  readonly #names = new Map<string, string>();
  readonly #addresses = new Map<string, string>();
  readonly #counts = new Map<string, number>();

  /** Adds a name; `kind` is part of its replacement. */
  add(kind: string, name: string): void {
    if (common.has(name) || this.#names.has(name) || isIP(name) !== 0) return;
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    this.#names.set(name, `${kind}-${count}`);
  }

  /** Replaces whole words: in `default/web:http` the names are `default`, `web` and `http`. */
  text(text: string): string {
    // Either what may be an address, or a word: in one pass, so that nothing is replaced twice.
    return text.replaceAll(/(?<![\w.:-])[\da-fA-F.:]{2,}(?![\w-])|\w+(?:[-.]+\w+)*/g, (part) => this.#part(part));
  }

  /** Replaces names and addresses in the texts of a value, not in the names of its fields, except those of labels. */
  value(json: JsonValue): JsonValue {
    if (typeof json === "string") return this.text(json);
    if (Array.isArray(json)) return json.map((one) => this.value(one));
    if (json === null || typeof json !== "object") return json;
    return Object.fromEntries(Object.entries(json).map(([name, one]) => [name, this.value(one)]));
  }

  #part(part: string): string {
    return this.#address(part) ?? part.replaceAll(/\w+(?:[-.]+\w+)*/g, (word) => this.#word(word));
  }

  #word(word: string): string {
    const known = this.#names.get(word);
    if (known !== undefined || !word.includes(".")) return known ?? word;
    // web.default.svc: each part may be a name.
    return word
      .split(".")
      .map((part) => this.#names.get(part) ?? part)
      .join(".");
  }

  /** Replaces an address, perhaps with a port or at the end of a sentence; undefined for anything else. */
  #address(word: string): string | undefined {
    const [, address = "", rest = ""] = /^(\d+\.\d+\.\d+\.\d+|[\da-fA-F:]+[\da-fA-F])(.*)$/.exec(word) ?? [];
    const family = isIP(address);
    if (family === 0) return undefined;
    if (commonAddresses.has(address)) return word;
    const known = this.#addresses.get(address);
    const number = this.#addresses.size + 1;
    const made =
      family === 4 ? `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}` : `fd00::${number.toString(16)}`;
    this.#addresses.set(address, known ?? made);
    return `${known ?? made}${rest}`;
  }
}
