// Helpers for the tests of backends outside this repository, exported as @kpng/backend-kit/testing: a watcher that
// answers as the test decides, the operations that it sends, and builders of views.
export {
  endpoint,
  port,
  type ServiceParts,
  service,
  view,
} from "@kpng/model/testing/views.ts";
export { type Answer, type FakeWatcher, type ReceivedRequest, silence, startFakeWatcher } from "./fake-watcher.ts";
export { deleteEndpoint, deleteService, putEndpoint, putNode, putService, reset, sync, syncAt } from "./ops.ts";
