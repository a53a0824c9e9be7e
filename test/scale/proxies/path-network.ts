import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { kernelSettings } from "@kpng/laboratory/kernel-settings.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { cgroupMount } from "../../kernel/laboratory/bpf.ts";
import { pinTo } from "../processes.ts";

/** Addresses of a {@link PathNetwork}, the same for each proxy. The node's is that of `fillWithServices`. */
export const addresses = {
  node: "192.0.2.1",
  outside: "192.0.2.2",
  pod: "10.250.1.2",
  endpoint: "10.250.2.2",
} as const;

/** Port of the server in the namespace of the endpoint. */
export const endpointPort = 8_080;

const peers = { pod: "10.250.1.1", endpoint: "10.250.2.1", outside: addresses.node } as const;
const server = join(import.meta.dirname, "path-server.ts");

let made = 0;

/**
 * Namespaces around the one of a proxy, for `packet-path`: a pod and an endpoint of this node, and a host outside. The
 * endpoint serves.
 */
export class PathNetwork implements Disposable {
  /** A cgroup for the pod's processes; undefined unless programs are to be attached to one. */
  readonly cgroup: string | undefined;

  constructor(hasPrograms: boolean) {
    if (!hasPrograms) return;
    this.cgroup = join(cgroupMount() ?? "", `kpng-bench-${process.pid}-${made++}`);
    mkdirSync(this.cgroup);
  }

  /** Adds the namespaces to that of the proxy, which has the name "node". */
  readonly build = async (laboratory: Laboratory): Promise<void> => {
    await laboratory.run("node", ["sh", "-c", kernelSettings(true)]);
    // In the laboratory alone.
    if (this.cgroup !== undefined) await laboratory.run("node", ["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"]);
    for (const name of ["pod", "endpoint", "outside"] as const) {
      await laboratory.add(name);
      const links = [
        `link add to-${name} type veth peer name eth0 netns ${laboratory.path(name)}`,
        `address add ${peers[name]}/24 dev to-${name}`,
        `link set to-${name} up`,
      ];
      const inside = [
        `address add ${addresses[name]}/24 dev eth0`,
        "link set eth0 up",
        `route add default via ${peers[name]}`,
      ];
      await laboratory.run("node", ["ip", "-batch", "-"], `${links.join("\n")}\n`);
      await laboratory.run(name, ["ip", "-batch", "-"], `${inside.join("\n")}\n`);
    }
    const place = `${addresses.endpoint}:${endpointPort}`;
    laboratory.start("endpoint", [...pinTo("server"), process.execPath, server, place]);
  };

  /** Returns a command that runs another one in the cgroup, if there is one. */
  inCgroup(command: readonly string[]): readonly string[] {
    if (this.cgroup === undefined) return command;
    return ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', this.cgroup, ...command];
  }

  /** Removes the cgroup, after its processes have ended. */
  [Symbol.dispose](): void {
    if (this.cgroup !== undefined) rmdirSync(this.cgroup);
  }
}
