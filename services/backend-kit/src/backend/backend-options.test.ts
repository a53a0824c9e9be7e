import { expect, test } from "vitest";
import { connectionOptions } from "./backend-options.ts";

test.each(["--max-msg-size", "--max-view-size"])("%s rejects a number that most likely means mebibytes", (name) => {
  const option = connectionOptions.find(({ flags }) => flags.startsWith(`${name} `));
  expect(option?.parse?.("2097152", undefined)).toBe(2_097_152);
  expect(() => option?.parse?.("512", undefined)).toThrow(
    `${name} is a whole number of bytes, at least 1048576 (1 MiB)`,
  );
});
