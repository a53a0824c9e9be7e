import { X509Certificate } from "node:crypto";
import { addOptions, type OptionSpec, parseNonEmptyText, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command, InvalidArgumentError } from "commander";
import type { CertificateRequest, PemPair, SubjectName } from "../certificates/issue.ts";
import { servingManifest } from "../certificates/serving-manifest.ts";
import { namesOfNodes, rightNameOf, subjectNameOf } from "../certificates/subject-names.ts";
import type { Options } from "../context/command-context.ts";
import { withPlainErrors } from "./plain-errors.ts";

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
  repeatable("--name <name>", "address or DNS name under which nodes reach a watcher, as in their --api"),
  {
    flags: "--node-selector <label>",
    description: "also the internal addresses of the Nodes with this label, from the API server (default: no Nodes)",
    parse: parseNonEmptyText,
  },
  {
    flags: "--kubeconfig <file>",
    description:
      "kubeconfig file for --node-selector (default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config)",
  },
  {
    flags: "--server <url>",
    description: "URL of the API server, instead of the one in the kubeconfig",
    parse: parseNonEmptyText,
  },
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
 * cluster. `makeKpng` adds it. Separate from the folder `certificates/`, which issues and writes: this file has only
 * the command line.
 */
export function makeCertificates(signal: AbortSignal): Command {
  const serving = addOptions(new Command("serving"), [...servingOptions, ...issueOptions])
    .description("issue the certificate with which watchers serve TLS")
    .addHelpText(
      "after",
      `
Examples:
  # for deploy/kubernetes, with the addresses of the nodes that run watchers
  kpng certificates serving --node-selector node-role.kubernetes.io/kpng-watcher -o manifest |
    kubectl apply --server-side -f -

  # as files
  kpng certificates serving --name 10.0.0.11 --name watcher.example
`,
    )
    .action((options: Options) => withPlainErrors(() => issueServing(options, signal)));
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
  return new Command("certificates")
    .description("make a CA and certificates for watchers and their clients")
    .addCommand(serving)
    .addCommand(client);
}

async function issueServing(options: Options, signal: AbortSignal): Promise<void> {
  const given = (options.name as readonly string[]).map(subjectNameOf);
  const names = [...given, ...(await askNodes(options, signal))];
  if (names.length === 0) {
    throw new ProcessError("BAD_OPTION", "a serving certificate needs a name: give --name or --node-selector");
  }
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

async function askNodes(options: Options, signal: AbortSignal): Promise<readonly SubjectName[]> {
  const { nodeSelector, kubeconfig, server } = options as Record<string, string | undefined>;
  if (nodeSelector === undefined) return [];
  const { connectKube } = await import("@kpng/watcher/source/kube/connect.ts");
  return namesOfNodes(connectKube({ kubeconfig, server }), nodeSelector, signal);
}

async function issue(
  options: Options,
  request: Omit<CertificateRequest, "days">,
): Promise<{ readonly pair: PemPair; readonly authority: PemPair }> {
  // Loaded on demand: the X.509 library takes a tenth of a second.
  const [{ issueCertificate }, { openAuthority }] = await Promise.all([
    import("../certificates/issue.ts"),
    import("../certificates/authority-folder.ts"),
  ]);
  const [now, folder] = [new Date(), String(options.folder)];
  const authority = await openAuthority(folder, now);
  if (authority.isNew) say(`new CA: ${folder}/ca.crt; keep ${folder}/ca.key secret, and for the next certificate`);
  const pair = await issueCertificate(authority, { ...request, days: Number(options.days) }, now);
  const end = new X509Certificate(pair.certificate).validToDate.toISOString();
  say(`certificate for ${request.names.map(({ value }) => value).join(", ")}, valid until ${end}`);
  return { pair, authority };
}

async function writeFiles(options: Options, name: string, pair: PemPair): Promise<void> {
  const { writePair } = await import("../certificates/authority-folder.ts");
  say(`written: ${writePair(String(options.folder), name, pair).join(", ")}`);
}

/** Messages go to standard error: standard output carries the manifest. */
function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
