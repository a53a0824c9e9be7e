import { selected } from "../scenario/selection.ts";
import { kpngUserspace } from "./backend/kpng-userspace.ts";
import { describeBackend } from "./describe-backend.ts";

describeBackend({
  name: "kpng-userspace",
  whyNot: undefined,
  start: kpngUserspace,
  ...selected,
});
