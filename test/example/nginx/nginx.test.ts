import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { beforeEach, expect, test } from "vitest";
import { makeRuleSet } from "../../../examples/nginx/nginx-backend.ts";

let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

const stages = { committing: () => undefined };
const web = service("shop/web", {
  ips: ["10.96.0.10", "fd00:96::10"],
  type: "LoadBalancer",
  loadBalancerIPs: ["192.0.2.10"],
  ipFilters: [{ sourceRanges: ["203.0.113.0/24"] }],
  clientIPAffinitySeconds: 60,
  ports: [port(80, { name: "http", nodePort: 30_080 })],
  endpoints: ["10.1.0.1", "10.1.0.2", "fd00:1::1"].map((address) =>
    endpoint(address, { ports: [{ name: "http", port: 8080 }] }),
  ),
});
const dns = service("kube-system/dns", {
  ips: ["10.96.0.53"],
  ports: [port(53, { name: "dns", protocol: "UDP" })],
  endpoints: [endpoint("10.1.0.3", { ports: [{ name: "dns", port: 5353 }] })],
});
const whole = view([web, dns, service("shop/none", { ips: ["10.96.0.11"] })]);

/** A rule set whose reloads are counted in a file. */
function start(family: "v4" | "v6" = "v4") {
  const path = join(folder, `services-${family}.conf`);
  const rules = makeRuleSet(family, path, `echo >>${folder}/reloads`, { kind: "kernel" });
  const sync = (state: NodeView, touched: ReadonlySet<`${string}/${string}`> | "all" = "all") =>
    rules.sync(familyPlan(state, nodePlan({ family, isLoopbackNodePorts: false })), touched, stages);
  return {
    ...rules,
    sync,
    path,
    text: () => readFileSync(path, "utf8"),
    reloads: () => readFileSync(join(folder, "reloads"), "utf8").length,
  };
}

test("each frontend with endpoints is a server, with the source ranges, the affinity and the endpoints of its Service", async () => {
  const { sync, text } = start();
  await sync(whole);
  expect(text()).toBe(`upstream kube-system.dns.dns.UDP.clusterIP.10.96.0.53 {
  server 10.1.0.3:5353;
}
server {
  listen 10.96.0.53:53 udp;
  proxy_pass kube-system.dns.dns.UDP.clusterIP.10.96.0.53;
}
${serverOf("clusterIP.10.96.0.10", "10.96.0.10:80")}${serverOf("loadBalancerIP.192.0.2.10", "192.0.2.10:80", ["allow 203.0.113.0/24;", "deny all;"])}${serverOf("nodePort.0.0.0.0", "0.0.0.0:30080")}`);
});

function serverOf(frontend: string, listen: string, access: readonly string[] = []): string {
  const name = `shop.web.http.TCP.${frontend}`;
  const servers = ["10.1.0.1:8080", "10.1.0.2:8080"].map((server) => `  server ${server};\n`).join("");
  const lines = [`listen ${listen};`, ...access, `proxy_pass ${name};`].map((line) => `  ${line}\n`).join("");
  return `upstream ${name} {\n  hash $remote_addr;\n${servers}}\nserver {\n${lines}}\n`;
}

test("nginx is reloaded for a change, and neither for the same view nor for a check that finds none", async () => {
  const { sync, repair, reloads, text } = start();
  expect((await sync(whole)).mode).toBe("full");
  expect((await sync(whole, new Set(["shop/web"]))).mode).toBe("none");
  expect((await repair()).mode).toBe("none");
  expect(reloads()).toBe(1);
  const without = view([dns]);
  expect((await sync(without, new Set(["shop/web"]))).mode).toBe("partial");
  expect([reloads(), text().includes("shop")]).toEqual([2, false]);
});

test("a check undoes the change of another program and says which lines differed", async () => {
  const { sync, repair, path, text } = start();
  await sync(whole);
  const before = text();
  writeFileSync(path, before.replace("10.1.0.3", "10.9.9.9"));
  const [difference] = (await repair()).differences();
  expect(difference).toMatchObject({ missing: ["  server 10.1.0.3:5353;"], unwanted: ["  server 10.9.9.9:5353;"] });
  expect(text()).toBe(before);
});

test("after a reload that failed nginx is reloaded again, although the file is right", async () => {
  const path = join(folder, "services-v4.conf");
  const rules = makeRuleSet("v4", path, `test -e ${folder}/works`, { kind: "kernel" });
  const plan = familyPlan(whole, nodePlan());
  await expect(rules.sync(plan, "all", stages)).rejects.toThrow("failed");
  writeFileSync(join(folder, "works"), "");
  expect((await rules.sync(plan, "all", stages)).mode).toBe("full");
  expect((await rules.sync(plan, "all", stages)).mode).toBe("none");
});

test("nginx accepts the configuration of both families", async (context) => {
  const nginx = ["/usr/sbin/nginx", "/usr/bin/nginx"].find((path) => existsSync(path));
  const module = "/usr/lib/nginx/modules/ngx_stream_module.so";
  if (nginx === undefined || !existsSync(module)) {
    if (process.env.CI === "true") expect.fail("CI must have nginx (Debian package nginx-core)");
    context.skip("nginx with its stream module not found (Debian package nginx-core)");
  }
  for (const family of ["v4", "v6"] as const) await start(family).sync(whole);
  const conf = join(folder, "nginx.conf");
  const head = `load_module ${module};\npid ${folder}/pid;\nerror_log stderr;\nevents {}\n`;
  writeFileSync(conf, `${head}stream { include ${folder}/services-*.conf; }\n`);
  // A namespace of its own, in which addresses need not exist: nginx opens the sockets to test a configuration.
  const bind = "for v in 4 6; do echo 1 >/proc/sys/net/ipv$v/ip_nonlocal_bind; done";
  const isRoot = process.getuid?.() === 0;
  const command = ["unshare", ...(isRoot ? [] : ["--user", "--map-root-user"]), "--net", "sh", "-ec"];
  const [program = "", ...args] = [...command, `${bind}; exec ${nginx} -t -c ${conf}`];
  const { status, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (/unshare failed|Operation not permitted/.test(stderr) && process.env.CI !== "true") {
    context.skip(`no network namespace: ${stderr.trim()}`);
  }
  expect({ status, stderr }).toMatchObject({ status: 0 });
});
