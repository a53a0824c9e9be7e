import { isIP } from "node:net";
import type { JsonValue } from "@bufbuild/protobuf";

/** Names that many clusters have, and that say nothing about them. */
const common = new Set([
  ...["", "default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "kube-dns", "kpng"],
  ...["true", "false", "localhost"],
]);

/** As values of labels, short numbers stay: they are also ports, versions and counts. */
const shortNumber = /^\d{1,4}$/;

/** Addresses that say nothing about a cluster. */
const commonAddresses = new Set(["0.0.0.0", "::", "127.0.0.1", "::1"]);

/** Keys of labels and annotations that are not replaced. */
const commonKey = /^(app|([\w-]+\.)*(kubernetes|k8s|kpng)\.io\/.*)$/;

/** Between the parts of a long name; in a group, so that `split` keeps them. */
const separators = /([-.]+|__+)/;

const v4 = String.raw`(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)`;
/** An IPv4 address in a name: `ip-10-0-0-7`. */
const dashedV4 = String.raw`(?<!\d|\d-)\d{1,3}(?:-\d{1,3}){3}(?!-?\d)`;
/** Also times and ports; `isIP` decides. */
const perhapsV6 = String.raw`(?<![\w.])(?:[\da-fA-F]{1,4}|:):[\da-fA-F:.]*`;
const host = String.raw`(?<=https?:\/\/)[\w.-]*[A-Za-z][\w.-]*`;
const word = String.raw`\w+(?:[-.]+\w+)*`;
/** A line break in the JSON of a log is not the first letter of a name. */
const escaped = String.raw`\\+(?:u[\da-f]{4}|[bfnrt])`;
const parts = new RegExp(`(?<escaped>${escaped})|(?<host>${host})|(?<v6>${perhapsV6})|${word}`, "g");
const words = new RegExp(word, "g");
/** In a group, so that `split` keeps them. */
const addresses = new RegExp(`(${v4}|${dashedV4})`);

/**
 * Replaces names, host names of URLs and IP addresses by made-up ones, the same for the same name everywhere:
 * `service-1`, `10.0.0.7`. A report then still shows which objects belong together, but hides their names and networks.
 * A name is also found as part of a longer one: `web` in `web.shop.svc` and `web-7d9f-x`.
 *
 * Unknown names stay, for example those of deleted objects in a log, and names of ports.
 *
 * `bugReportCommand` and `redactedState` use it for `--redact`. Separate from both, because it knows only texts and
 * JSON. Names must be added before texts are redacted.
 */
export class Redactor {
  readonly #names = new Map<string, string>();
  readonly #addresses = new Map<string, string>();
  readonly #counts = new Map<string, number>();
  /** Largest number of parts of a name, with the separators: 5 for `web-7d9f-x`. */
  #maxParts = 1;

  /** Adds a name; `kind` is part of its replacement. */
  add(kind: string, name: string): void {
    if (common.has(name) || shortNumber.test(name) || this.#names.has(name) || isIP(name) !== 0) return;
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    this.#names.set(name, `${kind}-${count}`);
    this.#maxParts = Math.max(this.#maxParts, name.split(separators).length);
  }

  /** Replaces whole words: in `shop/web:http` the names are `shop`, `web` and `http`. */
  text(text: string): string {
    // In one pass, so that nothing is replaced twice.
    return text.replaceAll(parts, (part, ...rest) => {
      const groups = rest.at(-1) as Readonly<Partial<Record<"escaped" | "host" | "v6", string>>>;
      if (groups.escaped !== undefined) return part;
      if (groups.host !== undefined) return this.#host(part);
      const address = groups.v6 === undefined ? undefined : this.#v6(part);
      return address ?? part.replaceAll(words, (one) => this.#word(one));
    });
  }

  /** Replaces names and addresses in the texts of a value, and labels and annotations, but not the names of fields. */
  value(json: JsonValue): JsonValue {
    if (typeof json === "string") return this.text(json);
    if (Array.isArray(json)) return json.map((one) => this.value(one));
    if (json === null || typeof json !== "object") return json;
    return Object.fromEntries(
      Object.entries(json).map(([name, one]) => {
        const isMap = name === "labels" || name === "annotations";
        return [name, isMap && typeof one === "object" && one !== null ? this.#labels(one) : this.value(one)];
      }),
    );
  }

  #labels(labels: object): JsonValue {
    return Object.fromEntries(
      Object.entries(labels).map(([key, value]) => {
        if (!commonKey.test(key)) this.add("key", key);
        this.add("label", String(value));
        return [this.#names.get(key) ?? key, this.#names.get(String(value)) ?? this.text(String(value))];
      }),
    );
  }

  #host(name: string): string {
    if (/\.svc(\.|$)/.test(name)) return this.#word(name);
    this.add("host", name);
    return this.#names.get(name) ?? name;
  }

  /** Returns the replacement of an address that may be followed by dots or colons; undefined for anything else. */
  #v6(text: string): string | undefined {
    for (let end = text.length; end > 2; end -= 1) {
      const address = text.slice(0, end);
      if (isIP(address) === 6) return `${this.#address(address)}${text.slice(end)}`;
      if (!/[.:]$/.test(address)) return undefined;
    }
    return undefined;
  }

  #word(word: string): string {
    const known = this.#names.get(word);
    if (known !== undefined) return known;
    return word
      .split(addresses)
      .map((piece, index) => (index % 2 === 1 ? this.#v4(piece) : this.#longWord(piece)))
      .join("");
  }

  #v4(text: string): string {
    const address = text.replaceAll("-", ".");
    if (isIP(address) === 0) return text;
    const made = this.#address(address);
    return text === address ? made : made.replaceAll(".", "-");
  }

  /** Replaces the longest names in `web.shop.svc` or `web-7d9f-x`. */
  #longWord(word: string): string {
    const pieces = word.split(separators);
    let made = "";
    for (let start = 0; start < pieces.length; ) {
      let end = Math.min(pieces.length, start + this.#maxParts);
      let known: string | undefined;
      for (; end > start; end -= 1) {
        known = this.#names.get(pieces.slice(start, end).join(""));
        if (known !== undefined) break;
      }
      made += known ?? pieces[start] ?? "";
      start = known === undefined ? start + 1 : end;
    }
    return made;
  }

  #address(address: string): string {
    if (commonAddresses.has(address)) return address;
    const known = this.#addresses.get(address);
    if (known !== undefined) return known;
    const number = this.#addresses.size + 1;
    const made =
      isIP(address) === 4
        ? `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`
        : `fd00::${number.toString(16)}`;
    this.#addresses.set(address, made);
    return made;
  }
}
