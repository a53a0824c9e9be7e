import { existsSync, readFileSync } from "node:fs";
import { parseDurationMs } from "@kpng/process/options.ts";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import type { KubeObject } from "../cluster/api-client.ts";
import { makePrograms } from "../docs/reference/command-options.ts";
import { findKubectl } from "./find-kubectl.ts";
import { staticPodsGuide, yamlOfGuide } from "./install-guide.ts";
import { buildKustomization, commandLineOf, kustomizations, makeKustomization, podSpecOf } from "./kustomizations.ts";
import type { Container, PodSpec } from "./pod-spec.ts";

const kubectl = (await findKubectl()) ?? "";
const isSkipped = kubectl === "" && process.env.CI !== "true";

/** The containers of a kustomization, with the objects and pods that they belong to. */
function containersOf(folder: string): readonly { object: KubeObject; spec: PodSpec; container: Container }[] {
  return buildKustomization(kubectl, folder).flatMap((object) => {
    const spec = podSpecOf(object);
    return spec?.containers.map((container) => ({ object, spec, container })) ?? [];
  });
}

function settingOf({ env = [] }: Container, name: string): string | undefined {
  return env.find((variable) => variable.name === name)?.value;
}

/** Returns the command of ours that a command line runs, with its parents. */
function commandPath([name = "", ...words]: readonly string[]): readonly Command[] {
  const program = makePrograms().find((one) => one.name() === name);
  if (program === undefined) throw new Error(`no program ${name}`);
  const path = [program];
  for (const word of words) {
    const child = path.at(-1)?.commands.find((command) => command.name() === word);
    if (child !== undefined) path.push(child);
  }
  return path;
}

describe.skipIf(isSkipped)(`deploy/kubernetes${isSkipped ? " (skipped: no kubectl)" : ""}`, () => {
  test("kubectl is there, and every overlay and backend is a kustomization", () => {
    expect(kubectl).not.toBe("");
    expect(kustomizations.length).toBeGreaterThanOrEqual(10);
  });

  describe.each(kustomizations)("%s", (folder) => {
    test("has no object of kube-proxy, and images of this version", () => {
      for (const { kind, metadata } of buildKustomization(kubectl, folder)) {
        expect(metadata.name, kind).toMatch(/^kpng/);
      }
      for (const { container } of containersOf(folder)) {
        expect(container.image).toMatch(new RegExp(`^kpng-[a-z]+:${packageJson.version}$`));
        const target = container.image.replace(/^kpng-|:.*$/g, "");
        expect(existsSync(`services/${target === "watcher" ? target : `backend-${target}`}`), target).toBe(true);
      }
    });

    test("gives no container more privileges than it needs", () => {
      for (const { spec, container } of containersOf(folder)) {
        const { securityContext = {} } = container;
        expect(securityContext).toMatchObject({ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true });
        expect(securityContext.privileged ?? false).toBe(false);
        expect(securityContext.capabilities?.drop).toEqual(["ALL"]);
        const writesRules = spec.volumes?.some(({ hostPath }) => hostPath !== undefined) === true;
        const added = securityContext.capabilities?.add ?? [];
        expect(spec.hostPID ?? false).toBe(false);
        if (container.image.startsWith("kpng-ebpf:")) {
          expect(added).toEqual(["BPF", "NET_ADMIN", "PERFMON"]);
        } else expect(added.filter((name) => name !== "NET_ADMIN" && name !== "NET_RAW")).toEqual([]);
        if (!writesRules) {
          expect(added).toEqual([]);
          expect(securityContext.runAsUser ?? spec.securityContext?.runAsUser).toBe(65_532);
        }
      }
    });

    test("sets only options that its programs have", async () => {
      for (const { container } of containersOf(folder)) {
        const path = commandPath(commandLineOf(container));
        const known = new Set(path.flatMap(({ options }) => options.map(({ envVar }) => envVar)));
        const set = (container.env ?? []).map(({ name }) => name);
        expect(set.filter((name) => !known.has(name))).toEqual([]);
      }
    });

    test("declares the ports of health and metrics, and probes health", () => {
      for (const { container } of containersOf(folder)) {
        const declared = Object.fromEntries(
          (container.ports ?? []).map(({ name, containerPort }) => [name, containerPort]),
        );
        const portOf = (name: string): number => Number(settingOf(container, name)?.replace(/^.*:/, ""));
        expect(portOf("KPNG_HEALTHZ_BIND_ADDRESS")).toBe(declared.health);
        expect(portOf("KPNG_METRICS_BIND_ADDRESS")).toBe(declared.metrics);
        const listen = container.args?.find((arg) => arg.startsWith("--listen=tcp://"));
        expect(listen === undefined ? undefined : Number(listen.replace(/^.*:/, ""))).toBe(declared.grpc);
        for (const probe of [container.livenessProbe, container.readinessProbe]) {
          expect(probe?.httpGet).toMatchObject({ host: "127.0.0.1", port: "health" });
        }
        expect(container.livenessProbe?.httpGet?.path).toBe("/livez");
        expect(container.readinessProbe?.httpGet?.path).toBe("/readyz");
      }
    });

    test("keeps the ConfigMaps of variables in the cache of the kubelet, so that it can restart the container", () => {
      for (const { spec, container } of containersOf(folder)) {
        const volumes = spec.volumes?.map(({ configMap }) => configMap?.name) ?? [];
        for (const { valueFrom } of container.env ?? []) {
          if (valueFrom?.configMapKeyRef !== undefined) expect(volumes).toContain(valueFrom.configMapKeyRef.name);
        }
      }
    });

    test("gives each pod time to stop", () => {
      for (const { spec, container } of containersOf(folder)) {
        const path = commandPath(commandLineOf(container));
        const options = path.flatMap((command) => command.options);
        for (const name of ["--drain-time", "--timeout"]) {
          const option = options.find(({ long }) => long === name);
          if (option === undefined) continue;
          const given = container.args?.find((arg) => arg.startsWith(`${name}=`))?.split("=")[1];
          const ms = given === undefined ? Number(option.defaultValue) : parseDurationMs(given);
          expect((spec.terminationGracePeriodSeconds ?? 30) * 1_000, name).toBeGreaterThan(ms + 2_000);
        }
      }
    });
  });

  test("backends that may run on one node at the same time have different ports", () => {
    const ports = ["iptables", "nft", "ipvs", "ebpf", "userspace", "callout", "json"].flatMap((name) =>
      containersOf(`deploy/kubernetes/backends/${name}`).flatMap(({ container }) => container.ports ?? []),
    );
    const ofWatcher = containersOf("deploy/kubernetes/watcher").flatMap(({ container }) => container.ports ?? []);
    const numbers = [...ports, ...ofWatcher].map(({ containerPort }) => containerPort);
    expect(numbers.length).toBe(17);
    expect(new Set(numbers).size).toBe(numbers.length);
  });

  test("in place of kube-proxy, health is where load balancers of clouds ask, and elsewhere on loopback", () => {
    for (const folder of kustomizations) {
      const replaces = /replace-kube-proxy|single-process/.test(folder);
      for (const { object, container } of containersOf(folder)) {
        const address = settingOf(container, "KPNG_HEALTHZ_BIND_ADDRESS");
        if (replaces && object.kind === "DaemonSet") expect(address).toBe(":10256");
        else expect(address).toMatch(/^127\.0\.0\.1:/);
        expect(settingOf(container, "KPNG_METRICS_BIND_ADDRESS")).toMatch(/^127\.0\.0\.1:/);
      }
    }
  });

  test("components/monitoring opens the metrics of every part at the declared port, and monitors it", () => {
    const folder = makeKustomization(`${everyPart}\ncomponents: [DEPLOY/components/monitoring]`);
    const found = containersOf(folder);
    expect(found.length).toBe(9);
    for (const { container } of found) {
      const port = container.ports?.find(({ name }) => name === "metrics")?.containerPort;
      expect(settingOf(container, "KPNG_METRICS_BIND_ADDRESS")).toBe(`:${port}`);
    }
    const monitors = buildKustomization(kubectl, folder).filter(({ kind }) => kind === "PodMonitor");
    const jobs = found.flatMap(({ object }) => monitors.filter((monitor) => selects(monitor, object)));
    expect(jobs.map(({ metadata }) => metadata.name).toSorted()).toEqual([
      ...Array(7).fill("kpng-backends"),
      ...Array(2).fill("kpng-watcher"),
    ]);
  });

  test("the firewall of docs/install.md lets Prometheus reach the metrics of every part", () => {
    const row = readFileSync("docs/install.md", "utf8").match(/^\| all nodes \| (.*) \| Prometheus/m)?.[1] ?? "";
    const ranges = [...row.matchAll(/(\d+)(?: to (\d+))?\/TCP/g)].map(([, from, to = from]) => [from, to].map(Number));
    const found = containersOf(makeKustomization(everyPart));
    for (const { ports = [], image } of found.map(({ container }) => container)) {
      const port = ports.find(({ name }) => name === "metrics")?.containerPort ?? 0;
      expect(
        ranges.some(([from = 0, to = 0]) => from <= port && port <= to),
        `${image} ${port}`,
      ).toBe(true);
    }
  });

  test("no pod starts without the values of config.yaml, and config.yaml explains each", () => {
    const explained = new Set(
      [...readFileSync("deploy/kubernetes/config.yaml", "utf8").matchAll(/^ {2}# ([a-z-]+): /gm)].map(([, key]) => key),
    );
    const references = kustomizations
      .flatMap(containersOf)
      .flatMap(({ container: { env = [] } }) =>
        env.flatMap(({ valueFrom }) => (valueFrom?.configMapKeyRef === undefined ? [] : [valueFrom.configMapKeyRef])),
      );
    const required = references.filter(({ name }) => name === "kpng");
    expect(new Set(required.map(({ key }) => key))).toEqual(explained);
    expect(references.filter((reference) => "optional" in reference)).toEqual([]);
  });

  test("components/client-certificates gives watchers the CA of the clients, as docs/guides/static-pods.md says", () => {
    const text = staticPodsGuide().kustomization.replaceAll("../deploy/kubernetes", "DEPLOY");
    const [found, ...others] = containersOf(makeKustomization(text));
    expect(others).toEqual([]);
    const file = settingOf(found?.container ?? { name: "", image: "" }, "KPNG_LISTEN_TLS_CA");
    const mount = found?.container.volumeMounts?.find(({ mountPath }) => file === `${mountPath}/ca.crt`);
    const volume = found?.spec.volumes?.find(({ name }) => name === mount?.name);
    expect(volume?.configMap?.name).toBe("kpng-ca");
    expect(commandPath(["kpng", "kube", "to-api"]).flatMap(({ options }) => options)).toContainEqual(
      expect.objectContaining({ envVar: "KPNG_LISTEN_TLS_CA" }),
    );
  });

  test("the kustomizations of docs/install.md build, also with the resources beside kube-proxy", () => {
    const [text = ""] = yamlOfGuide();
    const beside = "resources: [DEPLOY/watcher, DEPLOY/backends/nft]";
    for (const one of [text, text.replace(/^resources:\n.*$/m, beside)]) {
      const images = containersOf(makeKustomization(one.replaceAll("../deploy/kubernetes", "DEPLOY"))).map(
        ({ container }) => container.image,
      );
      expect(images.toSorted()).toEqual([
        `registry.example/kpng/kpng-nft:${packageJson.version}`,
        `registry.example/kpng/kpng-watcher:${packageJson.version}`,
      ]);
    }
    const [sizing = ""] = yamlOfGuide().filter((text) => text.startsWith("patches:"));
    const [large] = containersOf(makeKustomization(`resources: [DEPLOY/watcher]\n${sizing}`));
    expect(large?.container).toMatchObject({ resources: { limits: { memory: "2Gi" } } });
  });
});

/** Start of a kustomization with every part of deploy/kubernetes. */
const everyPart = `resources: [DEPLOY/watcher, DEPLOY/relay, DEPLOY/backends/iptables, DEPLOY/backends/nft, DEPLOY/backends/ipvs, DEPLOY/backends/ebpf, DEPLOY/backends/userspace, DEPLOY/backends/callout, DEPLOY/backends/json]`;

/** Whether the selector of a PodMonitor matches the pods of a workload. */
function selects(monitor: KubeObject, { spec }: KubeObject): boolean {
  const { labels } = (spec as { template: { metadata: { labels: Readonly<Record<string, string>> } } }).template
    .metadata;
  const { selector } = monitor.spec as {
    readonly selector: {
      readonly matchLabels: Readonly<Record<string, string>>;
      readonly matchExpressions?: readonly { key: string; operator: string; values: readonly string[] }[];
    };
  };
  return (
    Object.entries(selector.matchLabels).every(([key, value]) => labels[key] === value) &&
    (selector.matchExpressions ?? []).every(({ key, operator, values }) => {
      expect(["In", "NotIn"]).toContain(operator);
      return values.includes(labels[key] ?? "") === (operator === "In");
    })
  );
}
