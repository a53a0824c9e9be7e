import { nodes, type State } from "@kpng/laboratory/scenario/build.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import { decodeNode } from "@kpng/source/decode/decode-node.ts";
import { decodeService } from "@kpng/source/decode/decode-service.ts";
import { decodeSlice } from "@kpng/source/decode/decode-slice.ts";
import { type Decoded, makeDecodeOptions, showPath } from "@kpng/source/decode/decoded.ts";
import { makeServiceView } from "@kpng/watcher/view/service-view.ts";

const decodeOptions = makeDecodeOptions({ serviceAnnotations: ["kpng.io/*"] });

/** Returns the objects of a state as the watcher decodes them. Errors: an object is invalid. */
export function objectsOfState(state: State) {
  return {
    services: state.services.map((service) => decoded(decodeService(service, decodeOptions))),
    slices: state.slices.map((slice) => decoded(decodeSlice(slice))),
    nodes: nodes.map((node) => decoded(decodeNode(node, decodeOptions))),
  };
}

/**
 * Returns the view of node n1 on a state, without a watcher. Tests that need the rules for a scenario but no process
 * use it. Errors: an object of the state is invalid.
 */
export function viewOfState(state: State): NodeView {
  const { services, slices, nodes } = objectsOfState(state);
  const [node] = nodes;
  if (node === undefined) throw new Error("there are no nodes");
  const views = services
    .filter(({ proxyName }) => proxyName === "")
    .map((service): readonly [ServiceKey, ServiceView] => {
      const own = slices.filter(({ serviceName }) => serviceName === service.name);
      return [serviceKey(service), makeServiceView(service, own, node)];
    });
  return { nodeName: node.name, node: { ...node, serviceCIDRs: [] }, services: new Map(views) };
}

function decoded<T>(result: Decoded<T>): T {
  if (result.kind === "ok") return result.value;
  throw new Error(result.kind === "skip" ? result.note : `${showPath(result.path)}: ${result.problem}`);
}
