import { localPortRange, localPorts } from "@kpng/backend-userspace/entry/entry.ts";
import { named, nothing, type State } from "@kpng/laboratory/scenario/build.ts";
import { pod } from "@kpng/laboratory/scenario/packet.ts";
import { beforeAll, expect, test, vi } from "vitest";
import { kpngUserspace } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";
import { useProxy } from "./use-proxy.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const udp = (name: string, number: number, host: "b" | "c", port = 80): State =>
  named(name, { number, ports: [{ port, protocols: ["udp"] }] }, [host]);
const poll = { timeout: 30_000, interval: 100 };

describePackets("UDP flows through kpng-userspace, with redirection", () => {
  const { world, proxy: backend } = useProxy(kpngUserspace);
  const nft = (text: string) => world().laboratory.run("n1", ["nft", text]);
  // Some rule of every node uses connection tracking.
  beforeAll(() =>
    nft("table ip node { chain pre { type filter hook prerouting priority -200; ct state new counter; }; }"),
  );

  /** Sends datagrams from one port, until the test ends. The result tells who answers since its last call. */
  async function openFlow(address: string, port = 80): Promise<() => Promise<string>> {
    const flow = await world().agentOf(pod("a")).openFlow({ protocol: "udp", address, port });
    return async () => {
      const { answered, name } = await flow.look();
      return answered === 0 ? "nobody" : (name ?? "?");
    };
  }

  /** Waits until the kernel's connection tracking has an entry. */
  const tracked = (destination: string, replySource: string) =>
    expect
      .poll(() => world().laboratory.run("n1", ["conntrack", "-L", "-p", "udp", "-d", destination]), poll)
      .toContain(`src=${replySource} `);

  test("a socket that sent before the rules existed is served", async () => {
    const who = await openFlow("10.96.0.61");
    await tracked("10.96.0.61", "10.96.0.61");
    await backend().start({}, udp("web", 61, "b"));
    await expect.poll(who, poll).toBe("b");
  });

  test("a flow that another proxy has left at an endpoint that is gone moves to one that is there", async () => {
    const rule = "ip daddr 10.96.0.62 udp dport 80 dnat to 10.1.2.99:8080";
    await nft(`table ip other { chain pre { type nat hook prerouting priority -100; ${rule}; }; }`);
    const who = await openFlow("10.96.0.62");
    await tracked("10.96.0.62", "10.1.2.99");
    await nft("delete table ip other");
    await backend().start({}, udp("web", 62, "b"));
    await expect.poll(who, poll).toBe("b");
  });

  const rivalNumber = 65;

  /** Port of the cluster IP of {@link rivalNumber} whose frontend prefers the same local port as port 80 of `number`. */
  function rivalOf(number: number): number {
    const firstPort = (frontend: string) =>
      localPorts(`UDP ${frontend}`, localPortRange)[Symbol.iterator]().next().value;
    const wanted = firstPort(`10.96.0.${number} 80`);
    const ports = Array.from({ length: 65_000 }, (_, at) => 81 + at);
    const rival = ports.find((port) => firstPort(`10.96.0.${rivalNumber} ${port}`) === wanted);
    return rival ?? expect.fail(`no other frontend prefers the port of ${number}`);
  }

  /** Waits until no entry leads from an address to another place. */
  const untranslated = (destination: string) =>
    expect
      .poll(() => world().laboratory.run("n1", ["conntrack", "-L", "-p", "udp", "-d", destination]), poll)
      .not.toContain("src=192.0.2.1 ");

  test.each([
    {
      when: "a deleted Service",
      number: 63,
      replace: async (next: State) => {
        await backend().apply(nothing);
        await backend().apply(next);
      },
    },
    {
      when: "a Service that was deleted while no process ran",
      number: 64,
      replace: async (next: State) => {
        await backend().stop("SIGKILL");
        await backend().start({}, next);
      },
    },
  ])("a client of $when does not reach the Service that gets its local port", async ({ number, replace }) => {
    const port = rivalOf(number);
    await backend().start({}, udp("web", number, "b"));
    const who = await openFlow(`10.96.0.${number}`);
    await expect.poll(who, poll).toBe("b");
    await replace(udp("next", rivalNumber, "c", port));
    await expect.poll(await openFlow(`10.96.0.${rivalNumber}`, port), poll).toBe("c");
    await untranslated(`10.96.0.${number}`);
    // Datagrams that reached the listener before the entry was deleted may still be answered.
    await expect.poll(who, poll).toBe("nobody");
    const other = await openFlow(`10.96.0.${rivalNumber}`, port);
    for (let count = 0; count < 5; count++) await expect.poll(other, poll).toBe("c");
    expect(await who()).toBe("nobody");
  });
});
