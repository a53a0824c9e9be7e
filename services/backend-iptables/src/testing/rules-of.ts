import type { ServiceView } from "@kpng/model/node-view.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { renderService } from "../render/render-service.ts";
import { type OptionParts, renderOptions } from "./options.ts";

/**
 * Renders a Service in a readable form: `SVC: rule` for its own chains, `filter SERVICES: rule` for shared chains,
 * without prefix, hashes and comments. The tests of `renderService` compare this form.
 */
export function rulesOf(service: ServiceView, parts: OptionParts = {}): readonly string[] {
  const options = renderOptions(parts);
  const { chains, listed } = renderService(planService(service, options.node), options);
  const own = [...chains].flatMap(([id, rules]) => rules.map((rule) => `${id.replace("nat ", "")}: ${rule}`));
  return [...listed.map(({ list, rule }) => `${list.id}: ${rule}`), ...own].map(plain);
}

function plain(text: string): string {
  return text
    .replace(/ ?-m comment --comment "[^"]*"/g, "")
    .replace(/KPNG-(SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}/g, "$1")
    .replaceAll("KPNG-", "")
    .replace(/ -p (tcp|udp|sctp) -m \1 /g, " $1 ")
    .replace(/: -p (tcp|udp|sctp) -m \1 /g, ": $1 ")
    .replace(/ --mask \S+ --rsource/g, "")
    .replace(/ --reject-with \S+/, "")
    .replace(/: $/, ":");
}
