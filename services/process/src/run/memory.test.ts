import { expect, test, vi } from "vitest";
import { memoryLimitBytes } from "./memory.ts";

test("the memory limit is that of the cgroup if it has one", () => {
  const constrained = vi.spyOn(process, "constrainedMemory");
  constrained.mockReturnValue(100 * 2 ** 20);
  expect(memoryLimitBytes()).toBe(100 * 2 ** 20);
  constrained.mockReturnValue(0);
  expect(memoryLimitBytes()).toBeGreaterThan(100 * 2 ** 20);
});
