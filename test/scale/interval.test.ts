import { expect, test } from "vitest";
import { describeInterval } from "./interval.ts";

test.each([
  { samples: [5], said: "5.00" },
  { samples: [2, 2, 2], said: "2.00 ± 0.00" },
  // Standard deviation 1, three samples: 4.30 / √3.
  { samples: [1, 2, 3], said: "2.00 ± 2.48" },
  { samples: [1, 3], said: "2.00 ± 12.71" },
])("the interval of $samples is $said", ({ samples, said }) => {
  expect(describeInterval(samples, 2)).toBe(said);
});
