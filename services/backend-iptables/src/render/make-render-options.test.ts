import type { Family } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { readSettings } from "../read-settings.ts";
import { makeRenderOptions } from "./make-render-options.ts";

const localAddresses = {
  v4: ["192.0.2.1", "127.0.0.1", "10.1.0.1"],
  v6: ["2001:db8::1", "::1", "fe80::1"],
};
const everywhere = ["128.0.0.0/1", "0.0.0.0/1", "8000::/1", "::/1"];

test.each<{ name: string; family: Family; nodeportAddresses: readonly string[]; localhost: boolean; are: unknown }>([
  { name: "all", family: "v4", nodeportAddresses: [], localhost: true, are: "all" },
  {
    name: "those listed, in order, 127.0.0.1 too",
    family: "v4",
    nodeportAddresses: everywhere,
    localhost: true,
    are: ["10.1.0.1", "127.0.0.1", "192.0.2.1"],
  },
  {
    name: "those listed but 127.0.0.1, without localhost",
    family: "v4",
    nodeportAddresses: everywhere,
    localhost: false,
    are: ["10.1.0.1", "192.0.2.1"],
  },
  {
    name: "those listed but ::1 and link-local ones",
    family: "v6",
    nodeportAddresses: everywhere,
    localhost: true,
    are: ["2001:db8::1"],
  },
])("addresses for node ports: $name ($family)", ({ family, nodeportAddresses, localhost, are }) => {
  const settings = readSettings({ nodeportAddresses, iptablesLocalhostNodeports: localhost }, "");
  const facts = { node: undefined, localAddresses, isConntrackLiberal: false };
  expect(makeRenderOptions(settings, family, facts).nodePortAddresses).toEqual(are);
});
