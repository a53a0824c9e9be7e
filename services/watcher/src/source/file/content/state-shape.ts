import type { AddressSet } from "@kpng/model/address.ts";
import { isRecord } from "@kpng/model/is-record.ts";
import { z } from "zod";
import { show } from "../../decode/decoded.ts";
import {
  addressField,
  affinitySecondsField,
  cidrField,
  nameField,
  nameOrEmptyField,
  numberField,
  portField,
  portOrZeroField,
  stringMapField,
  toSet,
  wordField,
} from "../../decode/fields.ts";

// The parts of a state file come first, because the schema below is built from them.

function addressOf(family: "v4" | "v6") {
  return addressField.refine((parsed) => parsed.family === family, {
    error: ({ input }) => `${show(isRecord(input) ? input.address : input)} is not an address of family ${family}`,
  });
}

const addressSet = z
  .strictObject({ v4: z.array(addressOf("v4")).nullish(), v6: z.array(addressOf("v6")).nullish() })
  .transform(({ v4, v6 }): AddressSet => toSet([...(v4 ?? []), ...(v6 ?? [])]));

/** Numeric value of KPNG's protocol enum; 0 is "unknown". */
const protocol = numberField(0, 3);

const topology = z.strictObject({ node: nameOrEmptyField.nullish(), zone: z.string().nullish() });

const node = z.strictObject({
  name: nameField,
  topology: topology.nullish(),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  // These three fields are our extension.
  addresses: z.array(addressField).nullish(),
  podcidrs: z.array(cidrField).nullish(),
  iseligible: z.boolean().nullish(),
});

const service = z.strictObject({
  namespace: nameOrEmptyField.nullish(),
  name: nameField,
  type: wordField("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "").nullish(),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  ips: z
    .strictObject({
      clusterips: addressSet.nullish(),
      externalips: addressSet.nullish(),
      loadbalancerips: addressSet.nullish(),
      headless: z.boolean().nullish(),
    })
    .nullish(),
  ipfilters: z
    .array(z.strictObject({ targetips: addressSet.nullish(), sourceranges: z.array(cidrField).nullish() }))
    .nullish(),
  mapip: z.boolean().nullish(),
  ports: z
    .array(
      z.strictObject({
        name: nameOrEmptyField.nullish(),
        protocol: protocol.nullish(),
        port: portField,
        nodeport: portOrZeroField.nullish(),
        targetport: portOrZeroField.nullish(),
        targetportname: nameOrEmptyField.nullish(),
      }),
    )
    .nullish(),
  externaltraffictolocal: z.boolean().nullish(),
  internaltraffictolocal: z.boolean().nullish(),
  sessionaffinity: z
    .strictObject({ clientip: z.strictObject({ timeoutseconds: affinitySecondsField }).nullish() })
    .nullish(),
  healthchecknodeport: portOrZeroField.nullish(),
  // These four fields are our extension.
  createdseconds: z.int().min(0).nullish(),
  uid: z.string().nullish(),
  proxyname: z.string().nullish(),
  proxymodeloadbalancerips: addressSet.nullish(),
});

const endpoint = z.strictObject({
  // Computed from the other fields. The value in the file is ignored.
  hash: z.unknown().optional(),
  namespace: z.string().nullish(),
  sourcename: nameOrEmptyField.nullish(),
  servicename: z.string().nullish(),
  podname: nameOrEmptyField.nullish(),
  endpoint: z
    .strictObject({
      hostname: nameOrEmptyField.nullish(),
      ips: addressSet.nullish(),
      // These two fields differ per node. They are in the file only because KPNG's type has them.
      local: z.boolean().nullish(),
      scopes: z.strictObject({ internal: z.boolean().nullish(), external: z.boolean().nullish() }).nullish(),
      portoverrides: z
        .array(
          z.strictObject({
            name: nameOrEmptyField.nullish(),
            port: portField,
            // Our extension.
            protocol: protocol.nullish(),
          }),
        )
        .nullish(),
    })
    .nullish(),
  conditions: z
    .strictObject({
      ready: z.boolean().nullish(),
      // These two fields are our extension.
      serving: z.boolean().nullish(),
      terminating: z.boolean().nullish(),
    })
    .nullish(),
  topology: topology.nullish(),
  hints: z
    .strictObject({
      zones: z.array(z.string()).nullish(),
      // Our extension.
      nodes: z.array(z.string()).nullish(),
    })
    .nullish(),
});

/**
 * Schema of KPNG's state file, as `kpng … to-file` writes it.
 *
 * Keys are the field names of KPNG's Go structs in lower case, as gopkg.in/yaml.v2 writes them. As in KPNG, unknown
 * keys are rejected, because a misspelled key would silently drop a setting. Null is the same as absent.
 *
 * Source: KPNG, `file2store.go` and `store2file.go`.
 *
 * `readState` parses with it, and then converts the result to our types. Separate, because the schema alone defines
 * which files are valid.
 */
export const stateShape = z.strictObject({
  nodes: z.array(node).nullish(),
  services: z.array(z.strictObject({ service, endpoints: z.array(endpoint).nullish() })).nullish(),
});

/** Parsed state file. */
export type State = z.infer<typeof stateShape>;
/** Parsed Node of a state file. */
export type StateNode = z.infer<typeof node>;
/** Parsed Service of a state file. */
export type StateService = z.infer<typeof service>;
/** Parsed endpoint of a state file. */
export type StateEndpoint = z.infer<typeof endpoint>;
