import type { Cluster } from "../cluster/cluster.ts";

interface Pod {
  readonly metadata: { readonly name: string };
  readonly status: {
    readonly phase: string;
    readonly containerStatuses?: readonly { readonly ready: boolean; readonly state: unknown }[] | undefined;
  };
}

/** Returns the pods of kube-system that are not ready, why, and the end of their logs: for the message of a failure. */
export async function podReport({ kubectl }: Cluster): Promise<string> {
  const namespace = "--namespace=kube-system";
  const list = JSON.parse(await kubectl.run(["get", "pods", namespace, "--output=json"])) as { readonly items: Pod[] };
  const unready = list.items.filter(({ status }) => status.containerStatuses?.every(({ ready }) => ready) !== true);
  const parts = unready.map(async ({ metadata, status }) => {
    const log = kubectl.run(["logs", namespace, metadata.name, "--tail=10"]).catch(String);
    const events = kubectl.run(["events", namespace, `--for=pod/${metadata.name}`]).catch(String);
    return `${metadata.name} ${status.phase} ${JSON.stringify(status.containerStatuses)}\n${await events}\n${await log}`;
  });
  return (await Promise.all(parts)).join("\n");
}
