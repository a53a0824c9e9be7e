/** The faults of `faulty-client.ts`, each with the rule that it breaks. */
export const faults = {
  "asks-for-another-node": "C1",
  "asks-twice": "C2",
  "never-asks-again": "C2",
  "applies-before-sync": "C3",
  "merges-values": "C3",
  "forgets-endpoint-deletes": "C3",
  "forgets-service-deletes": "C3",
  "service-forgets-endpoints": "C3",
  "only-ipv4": "C3",
  "ignores-empty-views": "C4",
  "ignores-reset": "C4",
  "removes-at-reset": "C4",
  "clears-at-the-end": "C5",
  "gives-up": "C5",
  "exits-when-refused": "C6",
  "retries-without-delay": "C6",
  "ignores-pushback": "C6",
  "fails-at-unknown-sets": "C7",
  "fails-at-unknown-operations": "C7",
  "makes-up-services": "C8",
  "stops-after-1000": "C9",
  "accepts-older": "C12",
  "ignores-sigterm": "C13",
  "fails-at-sigterm": "C13",
} as const;

export type Fault = keyof typeof faults;
