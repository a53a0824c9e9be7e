import { expect, test } from "vitest";
import { describeBpf } from "../../../../test/kernel/describe-bpf.ts";
import { loadProgram } from "./program.ts";

describeBpf("programs in the kernel", () => {
  test("the error for a rejected program ends in what the verifier says", () => {
    // The only instruction ends the program, whose result is not set.
    const program = { code: Buffer.from("9500000000000000", "hex"), references: [] };
    expect(() => loadProgram(program, { name: "no_result", attachType: 10 }, new Map())).toThrow(
      /^\[PROGRAM_REJECTED\] program no_result: errno 13 \(permission denied\): .*R0 !read_ok/s,
    );
  });
});
