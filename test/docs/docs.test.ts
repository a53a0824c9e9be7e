import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { backendOptions } from "@kpng/backend-kit/backend-options.ts";
import { acceptConfigFile } from "@kpng/backend-kit/config/config-file.ts";
import { observeBackend } from "@kpng/backend-kit/observe/observe-backend.ts";
import { ProxyMetrics } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import { makeKpng } from "@kpng/cli/kpng.ts";
import { Health } from "@kpng/process/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { observeStore } from "@kpng/watcher/store/store-metrics.ts";
import { makeStreamMetrics } from "@kpng/watcher/stream/session/stream-metrics.ts";
import { Command } from "commander";
import { Registry } from "prom-client";
import { describe, expect, test } from "vitest";

/** What documents name must exist, and what exists must be named. */
const read = (path: string): string => readFileSync(path, "utf8");
const operations = read("docs/operations.md");

function filesUnder(root: string, end: string): string[] {
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(end) && !/(^|\/)(node_modules|dist|\.git)\//.test(file))
    .map((file) => join(root, file));
}

const sources = filesUnder("services", ".ts").filter((file) => !/\.test\.ts$|\/testing\/|\/gen\//.test(file));

function all(texts: readonly string[], pattern: RegExp): string[] {
  return [...new Set(texts.flatMap((text) => [...text.matchAll(pattern)].map((match) => match[1] ?? "")))].sort();
}

/** First cells of table rows. */
function rows(document: string, pattern: RegExp): string[] {
  return all([document], new RegExp(`^\\| \`(${pattern.source})`, "gm"));
}

test("every error code has a row in docs/errors.md, and every row is a code", () => {
  const unions = sources
    .filter((file) => file.endsWith("-error.ts"))
    .map((file) => /(?:type \w+Code =|readonly code =)([^;]*);/.exec(read(file))?.[1] ?? "");
  expect(unions.length).toBeGreaterThan(4);
  expect(rows(read("docs/errors.md"), /[A-Z_]+/)).toEqual(all(unions, /"([A-Z_]+)"/g));
});

test("every metric has a row in docs/operations.md, and every row is a metric", () => {
  const written = all(sources.map(read), /\bname: "((?:kpng|kubeproxy)_[a-z_]+)"/g);
  expect(written.length).toBeGreaterThan(10);
  // These put their names together.
  const metrics = new Registry();
  new ProxyMetrics({ registry: metrics, families: ["v4"] });
  observeStore(new Store(), metrics);
  makeStreamMetrics(metrics, () => []);
  observeBackend({ proxyMode: "any" }, { healthzBindAddress: "127.0.0.1:0" }, { health: new Health(), metrics });
  const made = metrics.getMetricsAsArray().map(({ name }) => name);
  const registered = [...written, ...made.filter((name) => /^(kpng|kubeproxy)_/.test(name))];
  expect(rows(operations, /(?:kpng|kubeproxy)_[a-z_]+/)).toEqual([...new Set(registered)].sort());
});

describe("options", () => {
  const longOf = (flags: string): string => /--[a-z0-9-]+/.exec(flags)?.[0] ?? flags;

  function optionsOf(command: Command): { readonly flag: string; readonly env: string | undefined }[] {
    const own = command.options.map(({ flags, envVar }) => ({ flag: longOf(flags), env: envVar }));
    return [...own, ...command.commands.flatMap(optionsOf)];
  }

  const program = addOptions(new Command("kpng-NAME"), backendOptions);
  acceptConfigFile(program, { proxyMode: "any", log: createLog() });
  const options = [...optionsOf(makeKpng(new AbortController().signal)), ...optionsOf(program)];

  test("every option has a row in docs/operations.md, and every row is an option", () => {
    const flags = [...new Set(options.map(({ flag }) => flag))].sort();
    expect(rows(operations, /--[a-z0-9-]+/)).toEqual(flags);
  });

  test("environment names follow the rule, or are named", () => {
    const byRule = (flag: string): string => `KPNG_${flag.slice(2).replaceAll("-", "_").toUpperCase()}`;
    const odd = options.flatMap(({ flag, env }) => (env === undefined || env === byRule(flag) ? [] : [env]));
    expect(odd.filter((env) => !operations.includes(`\`${env}\``))).toEqual([]);
  });
});

describe("relative links lead somewhere", () => {
  const roots = readdirSync(".").filter((name) => name.endsWith(".md"));
  const documents = ["docs", "deploy", "examples", "services", "test"].flatMap((root) => filesUnder(root, ".md"));

  test.each([...roots, ...documents])("%s", (file) => {
    // Code may hold what looks like a link.
    const text = read(file).replaceAll(/^```[\s\S]*?^```/gm, "");
    const targets = all([text], /\]\(([^)\s#]+)(?:#[^)]*)?\)/g).filter((target) => !/^[a-z]+:/.test(target));
    expect(targets.filter((target) => !existsSync(join(dirname(file), target)))).toEqual([]);
  });

  /** As GitHub makes them of headings. */
  function anchorsIn(document: string): ReadonlySet<string> {
    const headings = all([document.replaceAll(/^```[\s\S]*?^```/gm, "")], /^#+ (.+)$/gm);
    return new Set(
      headings.map((text) =>
        text
          .toLowerCase()
          .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
          .replaceAll(" ", "-"),
      ),
    );
  }

  test("and to a heading that is there, where they name one", () => {
    const missing = [...roots, ...documents].flatMap((file) => {
      const links = [...read(file).matchAll(/\]\(([^)\s#:]*)#([^)]+)\)/g)];
      return links.flatMap(([, target = "", anchor = ""]) => {
        const path = target === "" ? file : join(dirname(file), target);
        if (!path.endsWith(".md") || !existsSync(path)) return [];
        return anchorsIn(read(path)).has(anchor) ? [] : [`${file}: ${target}#${anchor}`];
      });
    });
    expect(missing).toEqual([]);
  });
});

test("each decision has a number of its own", () => {
  const names = readdirSync("docs/decisions");
  expect(names.filter((name) => !/^\d{4}-[a-z0-9-]+\.md$/.test(name))).toEqual([]);
  const numbers = names.map((name) => name.slice(0, 4));
  expect(numbers).toEqual([...new Set(numbers)]);
});
