import { existsSync } from "node:fs";
import { publicAddress, type ServiceOptions, web } from "@kpng/laboratory/scenario/build.ts";
import { families, hosts } from "@kpng/laboratory/scenario/places.ts";
import { beforeAll, expect, test } from "vitest";
import { kpngIptables, kpngNft } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";
import { useProxy } from "./use-proxy.ts";

// Protocols without ports, which the packets of scenarios cannot have.

const address = publicAddress(20);
const headless: ServiceOptions = { isHeadless: true, ports: [], externalIPs: [address] };

const interpreter = "/usr/bin/python3";

/** Returns a command that runs a program with a raw socket `s` of protocol 253, which RFC 3692 reserves for experiments. */
function python(program: string, address: string): readonly string[] {
  const family = address.includes(":") ? "AF_INET6" : "AF_INET";
  const start = `import socket, sys\na = sys.argv[1]\ns = socket.socket(socket.${family}, socket.SOCK_RAW, 253)\n`;
  return [interpreter, "-c", start + program, address];
}

const answerOnce = "s.bind((a, 0))\ns.settimeout(10)\nclient = s.recvfrom(100)[1]\ns.sendto(b'pong', client)";

const ask = `
s.settimeout(0.2)
for _ in range(25):
    s.sendto(b"ping", (a, 0))
    try:
        data, sender = s.recvfrom(100)
    except TimeoutError:
        continue
    print("answered" if data.endswith(b"pong") and sender[0] == a else sender)
    break
`;

for (const [name, open] of Object.entries({ "kpng-nft": kpngNft, "kpng-iptables": kpngIptables })) {
  describePackets(`whole addresses of ${name}`, () => {
    const { world, proxy } = useProxy(open);
    beforeAll(() => proxy().start({}, web(headless, ["b"])));

    /** Returns true if an address answers one ping within a second. */
    const ping = async (sender: string, to: string): Promise<boolean> =>
      (await world().laboratory.tryRun(sender, ["ping", "-c", "1", "-W", "1", to])).exitCode === 0;

    /** Returns the number of echo requests that a pod has answered. */
    const answered = async (pod: "b" | "c"): Promise<number> => {
      const counters = await world().laboratory.run(pod, ["cat", "/proc/net/snmp", "/proc/net/snmp6"]);
      const icmp = /^Icmp: .*\bOutEchoReps\b.*$\n^Icmp: (.*)$/m.exec(counters);
      const names = /^Icmp: (.*\bOutEchoReps\b.*)$/m.exec(counters)?.[1]?.split(" ") ?? [];
      const v4 = Number(icmp?.[1]?.split(" ")[names.indexOf("OutEchoReps")]);
      return v4 + Number(/^Icmp6OutEchoReplies\s+(\d+)$/m.exec(counters)?.[1]);
    };

    test.each(["client", "a", "n1"])("an endpoint answers the pings of %s", async (sender) => {
      for (const family of families) {
        const before = await answered("b");
        expect(await ping(sender, address[family]), family).toBe(true);
        expect(await answered("b")).toBeGreaterThan(before);
      }
    });

    test("the node answers pings to its own addresses, also if a Service asks for them", async () => {
      await proxy().apply(web({ ...headless, externalIPs: [hosts.n1] }, ["b"]));
      const before = await answered("b");
      for (const family of families) {
        expect(await ping("client", hosts.n1[family]), family).toBe(true);
      }
      expect(await answered("b")).toBe(before);
    });

    test.skipIf(!existsSync(interpreter))("a protocol that nobody knows reaches the endpoint and back", async () => {
      await proxy().apply(web(headless, ["b"]));
      for (const family of families) {
        const answering = world().laboratory.tryRun("b", python(answerOnce, hosts.b[family]));
        const { exitCode, stdout, stderr } = await world().laboratory.tryRun("client", python(ask, address[family]));
        expect({ exitCode, stdout, stderr }).toEqual({ exitCode: 0, stdout: "answered\n", stderr: "" });
        await answering;
      }
    });

    test("without endpoints nobody answers pings", async () => {
      await proxy().apply(web(headless, []));
      for (const family of families) expect(await ping("client", address[family])).toBe(false);
    });
  });
}
