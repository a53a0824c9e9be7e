import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { parseObjectFile } from "../bpf/program.ts";
import { socketHooks } from "../datapath/datapath.ts";
import { mapLayouts } from "../layout/layout.ts";
import { compile, compilerVersion, digestSource } from "./compile.ts";
import { objectFile, sourceDigest } from "./object.ts";

const committed = gunzipSync(Buffer.from(objectFile, "base64"));

describe("the committed object file", () => {
  // Debian 12's; another release of clang may make other code from the same source.
  const whyNot = compilerVersion() === 14 ? undefined : "clang 14 is not installed";

  test.skipIf(whyNot !== undefined)(
    `is what clang makes from the source${whyNot === undefined ? "" : ` (skipped: ${whyNot})`}`,
    () => {
      const isEqual = compile().equals(committed);
      expect(isEqual, "run: node services/backend-ebpf/src/program/compile.ts").toBe(true);
    },
  );

  test("was made from the source as it is now", () => {
    expect(sourceDigest, "run: node services/backend-ebpf/src/program/compile.ts").toBe(digestSource());
  });

  test("has the code of each hook, and refers to maps that exist", () => {
    const programs = parseObjectFile(committed);
    const names = mapLayouts({ maxFrontends: 1, maxEndpoints: 2 }).map(({ name }) => name);
    for (const { name } of socketHooks) {
      const maps = programs.get(`socket/${name}`)?.references.map(({ symbol }) => symbol) ?? [];
      expect(maps.length, name).toBeGreaterThan(0);
      expect(names, name).toEqual(expect.arrayContaining(maps));
    }
  });
});
