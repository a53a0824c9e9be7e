import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// What a person types on the first day, and what must be on the screen then.

const input = resolve("test/fixtures/kpng/input.yaml");
const { at, start } = usePrograms();

interface Typed {
  readonly typed: string;
  readonly code?: number;
  /** Standard output. Default: nothing. */
  readonly out?: RegExp;
  /** Standard error. Default: nothing. */
  readonly said?: RegExp;
  readonly maxLines?: number;
}

const none = "unix:///tmp/kpng-no-such";

describe("a question", () => {
  test.each<Typed>([
    { typed: "--help", out: /Run:[\s\S]*Ask:[\s\S]*Debug:[\s\S]*Administer:/, maxLines: 40 },
    { typed: "local to-nft --help", out: /--help-all/, maxLines: 60 },
    { typed: "conformance protocol --help", out: /such as KPNG_REPORT for --report\.\n$/ },
    { typed: `file -i ${input} get service web -o json`, out: /^\{\n {2}"namespace": "default",\n {2}"name": "web"/ },
    { typed: `file -i ${input} get services -o json`, out: /^\{\n {2}"kind": "List",\n {2}"items": \[/ },
    { typed: `file -i ${input} explain web:http --node n1`, out: /^a pod → 10\.0\.0\.1:80\/TCP: FORWARD\n/ },
    { typed: `file -i ${input} get view n1`, out: /^NAMESPACE/ },
    { typed: `file -i ${input} get view n1 --service nothing`, said: /^no endpoints found\n$/ },
    { typed: `file -i ${input} get services -n nothing`, said: /^no Services found\n$/ },
    { typed: `file -i ${input} analyze`, out: /^warning .*\n *→ [\s\S]*\n0 errors, 2 warnings\n$/ },
    { typed: `status --api ${none}1 --api ${none}2`, code: 1, said: /no-such1[\s\S]*no-such2/ },
    { typed: `status --api ${none}1,${none}2`, code: 1, said: /no-such1[\s\S]*no-such2/ },
    { typed: "file -i missing.yaml get services", code: 1, said: /missing\.yaml: cannot be read/ },
  ])("kpng $typed", async ({ typed, code = 0, out = /^$/, said = /^$/, maxLines = 1_000 }) => {
    const program = start(kpngMain, typed.split(" "));
    expect([await program.ended, program.stderr()]).toEqual([code, expect.stringMatching(said)]);
    expect(program.stdout()).toMatch(out);
    expect(program.stdout().split("\n").length).toBeLessThanOrEqual(maxLines);
  });

  test("a file with the name .json is JSON", async () => {
    await start(kpngMain, ["file", "-i", input, "to-file", "-o", at("state.json"), "--once"]).ended;
    expect(JSON.parse(readFileSync(at("state.json"), "utf8"))).toHaveProperty("services");
  });
});

test.each([
  { program: "nft", args: ["--hostname-override", "n1"], says: /--node-name/ },
  { program: "nft", args: ["--hostname-override=n1"], says: /--node-name/ },
  { program: "callout", args: ["--node-name", "n1", "--callout", "python3 x.py"], says: /--callout-arg/ },
])("kpng-$program $args ends at once with the right option", async ({ program, args, says }) => {
  const backend = start(`services/backend-${program}/src/main.ts`, [...args, "--api", none]);
  expect(await backend.ended).not.toBe(0);
  expect(backend.stderr()).toMatch(says);
});
