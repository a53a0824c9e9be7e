import { selected } from "../scenario/selection.ts";
import { kpngUserspace } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";

describeBackend({
  name: "kpng-userspace",

  start: kpngUserspace,
  ...selected,
});
