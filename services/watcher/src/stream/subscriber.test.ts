import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { node, service } from "../testing/build.ts";
import { Acknowledgement } from "./acknowledgement.ts";
import { localProjection } from "./local-projection.ts";
import { Subscribers } from "./subscribers.ts";

test("a batch counts as told when it is sent, not when it is made; what does not concern a subscriber counts at once", () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [] });
  const seen: string[] = [];
  const subscribers = new Subscribers(new Registry());
  subscribers.observe((followed) => ({
    sent: () => seen.push(`sent ${followed.sentRevision}`),
    received: () => seen.push(`received ${followed.receivedRevision}`),
    acknowledged: () => seen.push(`applied ${followed.appliedRevision}`),
    closed: () => seen.push("closed"),
  }));
  const subscriber = subscribers.add("local", "", store);
  const projection = localProjection({ nodeName: "n1", proxyName: "", isExtended: true, wantsNode: false });
  const send = (after: number, whileWriting = () => {}): void => {
    const { snapshot } = subscriber.subscription.advance(projection);
    whileWriting();
    subscriber.sent({ after, revision: snapshot.revision, computedAtMs: 0, byteCount: 1 });
    subscriber.received(snapshot.revision);
  };
  const revisions = () => [subscriber.upToDateRevision, subscriber.receivedRevision, subscriber.appliedRevision];

  send(0);
  subscriber.acknowledge(new Acknowledgement(1));
  expect(revisions()).toEqual([1, 1, 1]);

  store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
  send(1, () => expect(revisions()).toEqual([1, 1, 1]));
  expect(revisions()).toEqual([2, 2, 1]);
  subscriber.acknowledge(new Acknowledgement(2));

  store.apply([{ kind: "put-node", node: node("n9") }]);
  expect(subscriber.subscription.advance(projection).changes.isEmpty).toBe(true);
  expect(revisions()).toEqual([3, 3, 3]);
  store.apply([{ kind: "delete-service", key: "ns/other" }]);
  expect(subscriber.subscription.advance(projection).snapshot.revision).toBe(4);
  expect(revisions()).toEqual([3, 3, 3]);
  subscriber.close();
  expect(() => subscriber.received(5)).toThrow("Received names revision 5, the last sent is 2");
  expect(() => subscriber.acknowledge(new Acknowledgement(5))).toThrow("Ack names revision 5, the last sent is 2");
  expect(seen).toEqual(["sent 1", "received 1", "applied 1", "sent 2", "received 2", "applied 2", "closed"]);
});
