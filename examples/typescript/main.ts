import { runBackend } from "@kpng/backend-kit";

// Prints the Services of a node with the endpoints that get new traffic, as they change: docs/writing-a-backend.md.

await runBackend({
  name: "print",
  onChanges: ({ view, touched }) => {
    for (const key of touched) {
      const found = view.services.get(key);
      const addresses = found?.endpoints.filter(({ use }) => use.cluster).flatMap((endpoint) => endpoint.addresses.v4);
      const text = found === undefined ? "deleted" : `${found.service.clusterIPs?.v4 ?? []} -> ${addresses}`;
      process.stdout.write(`${key} ${text}\n`);
    }
  },
});
