import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { addOptions, type OptionSpec, parseNonEmptyText, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command, InvalidArgumentError } from "commander";
import { stringify } from "yaml";
import type { CertificateRequest, PemPair, SubjectName } from "../certificates/issue.ts";
import type { Options } from "../context/command-context.ts";
import { withPlainErrors } from "../inspect/client.ts";

const issueOptions: readonly OptionSpec[] = [
  {
    flags: "--folder <folder>",
    description: "folder of the CA (ca.key, ca.crt) and of the files written; a missing CA is made",
    default: "kpng-certificates",
    parse: parseNonEmptyText,
  },
  {
    flags: "--days <count>",
    description: "days until the certificate expires; not later than its CA, which is made for 10 years",
    default: 365,
    parse: parseWholeNumber("--days", 1, 3_650),
  },
];

const servingOptions: readonly OptionSpec[] = [
  repeatable(
    "--name <name>",
    "address or DNS name under which nodes reach a watcher, as in their --api; several separated by commas or spaces",
  ),
  {
    flags: "--namespace <name>",
    description: "namespace of the objects in the manifest",
    default: "kube-system",
    parse: parseNonEmptyText,
  },
  {
    flags: "-o, --output <format>",
    description:
      "files (serving.key, serving.crt) or manifest (a Secret and a ConfigMap on standard output, for kubectl apply)",
    default: "files",
    env: "KPNG_OUTPUT_FORMAT",
    parse: (text) => {
      if (text !== "files" && text !== "manifest") throw new InvalidArgumentError("expected files or manifest");
      return text;
    },
  },
];

/**
 * `kpng certificates`: makes a CA, and certificates for watchers and their clients, before anything runs in the
 * cluster.
 */
export function makeCertificates(): Command {
  const serving = addOptions(new Command("serving"), [...servingOptions, ...issueOptions])
    .description("issue the certificate with which watchers serve TLS")
    .addHelpText(
      "after",
      `
Examples:
  # for deploy/kubernetes, with the addresses of the nodes that run watchers
  nodes=$(kubectl get nodes -l node-role.kubernetes.io/kpng-watcher -o \\
    jsonpath='{.items[*].status.addresses[?(@.type=="InternalIP")].address}')
  kpng certificates serving --name "$nodes" -o manifest | kubectl apply --server-side -f -

  # as files
  kpng certificates serving --name 10.0.0.11 --name watcher.example
`,
    )
    .action((options: Options) => withPlainErrors(() => issueServing(options)));
  const client = addOptions(new Command("client"), [
    repeatable(
      "--right <uri>",
      "what the client may do: kpng://node/NAME, kpng://node/*, kpng://state or kpng://inspection",
    ),
    ...issueOptions,
  ])
    .argument("<name>", "name of the client, and of the files: NAME.key and NAME.crt")
    .description("issue a certificate for a client of watchers")
    .addHelpText(
      "after",
      `
Examples:
  kpng certificates client n1 --right kpng://node/n1
  kpng certificates client operator --right kpng://inspection --days 30
`,
    )
    .action((name: string, options: Options) => withPlainErrors(() => issueClient(name, options)));
  return new Command("certificates").addCommand(serving).addCommand(client);
}

async function issueServing(options: Options): Promise<void> {
  const texts = (options.name as readonly string[]).flatMap((text) => text.split(/\s+/).filter((word) => word !== ""));
  if (texts.length === 0) throw new ProcessError("BAD_OPTION", "a serving certificate needs a name: give --name");
  const names = [...new Set(texts)].map(subjectNameOf);
  const { pair, authority } = await issue(options, { commonName: "kpng-watcher", names, usage: "server" });
  if (options.output === "manifest") {
    process.stdout.write(servingManifest(String(options.namespace), pair, authority.certificate));
    return;
  }
  await writeFiles(options, "serving", pair);
}

async function issueClient(name: string, options: Options): Promise<void> {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/.test(name) || name === "ca" || name === "serving") {
    const text = `the name "${name}" cannot be that of a file: use letters, digits, ".", "_", "-"; not "ca" or "serving"`;
    throw new ProcessError("BAD_OPTION", text);
  }
  const names = (options.right as readonly string[]).map(rightNameOf);
  if (names.length === 0) throw new ProcessError("BAD_OPTION", "a client certificate without --right allows nothing");
  const { pair } = await issue(options, { commonName: name.slice(0, 64), names, usage: "client" });
  await writeFiles(options, name, pair);
}

async function issue(
  options: Options,
  request: Omit<CertificateRequest, "days">,
): Promise<{ readonly pair: PemPair; readonly authority: PemPair }> {
  // Loaded on demand: the X.509 library takes a tenth of a second.
  const { issueCertificate, openAuthority } = await import("../certificates/issue.ts");
  const [now, folder] = [new Date(), String(options.folder)];
  const authority = await openAuthority(folder, now);
  if (authority.isNew) say(`new CA: ${folder}/ca.crt; keep ${folder}/ca.key secret, and for the next certificate`);
  const pair = await issueCertificate(authority, { ...request, days: Number(options.days) }, now);
  const end = new X509Certificate(pair.certificate).validToDate.toISOString();
  say(`certificate for ${request.names.map(({ value }) => value).join(", ")}, valid until ${end}`);
  return { pair, authority };
}

async function writeFiles(options: Options, name: string, pair: PemPair): Promise<void> {
  const { writePair } = await import("../certificates/issue.ts");
  say(`written: ${writePair(String(options.folder), name, pair).join(", ")}`);
}

/** Messages go to standard error: standard output carries the manifest. */
function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

/**
 * Returns the objects that the manifests in deploy/kubernetes expect, as YAML: the Secret `kpng-watcher-tls` for
 * watchers, and the ConfigMap `kpng-ca` for nodes. Two objects, because an account that may read the CA must not read
 * the key. `kpng certificates serving -o manifest` prints it.
 */
export function servingManifest(namespace: string, { key, certificate }: PemPair, authority: string): string {
  const labels = { "app.kubernetes.io/name": "kpng" };
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const objects = [
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "kpng-watcher-tls", namespace, labels },
      type: "kubernetes.io/tls",
      data: { "tls.crt": base64(certificate), "tls.key": base64(key) },
    },
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "kpng-ca", namespace, labels },
      data: { "ca.crt": authority },
    },
  ];
  return objects.map((object) => stringify(object, { lineWidth: 0 })).join("---\n");
}

const dnsName = /^(?:\*\.)?(?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?$/;

/**
 * Returns the name of a watcher as it is in the certificate. *Shape:* `10.0.0.11`, `fd00::11`, `watcher.example`.
 *
 * Checks the text: `issue.ts` trusts its arguments. Errors: BAD_OPTION.
 */
export function subjectNameOf(text: string): SubjectName {
  if (isIP(text) !== 0) return { type: "ip", value: text };
  if (text.length <= 253 && dnsName.test(text)) return { type: "dns", value: text };
  throw new ProcessError("BAD_OPTION", `--name "${text}" is neither an address nor a DNS name: write 10.0.0.11`);
}

const nodeName = /^kpng:\/\/node\/(?:\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$/;

/**
 * Returns a right of a client as it is in the certificate; `rightsOfCertificate` of the watcher lists them. For the
 * option `--right` of `kpng certificates client`.
 *
 * Errors: BAD_OPTION.
 */
export function rightNameOf(text: string): SubjectName {
  if (text === "kpng://state" || text === "kpng://inspection" || nodeName.test(text))
    return { type: "url", value: text };
  const known = "kpng://node/NAME, kpng://node/*, kpng://state, kpng://inspection";
  throw new ProcessError("BAD_OPTION", `--right "${text}" is not a right: use ${known}`);
}
