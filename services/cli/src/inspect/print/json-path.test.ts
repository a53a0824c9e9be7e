import { expect, test } from "vitest";
import { parseColumns, parseTemplate, valuesAt } from "./json-path.ts";
import { formatTable } from "./table.ts";

const web = { name: "web", zone: "", ports: [{ port: 80 }, { port: 443 }], labels: { app: "web" } };
const dns = { name: "dns", zone: "a", ports: [{ port: 53 }], labels: {} };
const list = { items: [web, dns] };

test.each([
  ["{.items[*].name}", "web dns"],
  ["{.items[0].ports[*].port}", "80 443"],
  ["names: {.items[*].name}!", "names: web dns!"],
  ['{range .items[*]}{.name}{"\\t"}{.ports[0].port}{"\\n"}{end}', "web\t80\ndns\t53\n"],
  ["{range .items[*]}{range .ports[*]}{.port};{end}{end}", "80;443;53;"],
  ['{.items[?(@.name=="dns")].ports[0].port}', "53"],
  ["{$.items[1].name}{@.items[0].name}", "dnsweb"],
  ["{.items[0].labels}", '{"app":"web"}'],
  ["{.items[*].nothing}", ""],
  ["{.items[*].metadata.name} {.items[0].metadata.labels.app} {.items[0].spec.ports[0].port}", "web dns web 80"],
  ["{range .items[*].zone}[{@}]{.x}{end}", "[][a]"],
])("template %s", (template, text) => {
  expect(parseTemplate(template)(list)).toBe(text);
});

test.each(["{.items", "a}", "{range .items[*]}{.name}", "{.name}{end}"])("template %s is refused", (template) => {
  expect(() => parseTemplate(template)).toThrow();
});

test("columns have a title and a path each", () => {
  expect(formatTable(parseColumns("NAME:.name,PORTS:.ports[*].port,APP:{.labels.app}"), [web, dns], true)).toBe(
    "NAME   PORTS    APP\nweb    80,443   web\ndns    53       <none>\n",
  );
  expect(() => parseColumns("NAME")).toThrow("TITLE:.field");
});

test("a path may be written with or without dot and braces", () => {
  for (const path of [".name", "name", "{.name}"]) expect(valuesAt(path, web)).toEqual(["web"]);
});
