import { expect, test } from "vitest";
import { revisions, spend, turn, useStreams } from "../../testing/recorded-streams.ts";

const streams = useStreams();

test("cancelled streams cost only the work done before the cancellation was known", async () => {
  let views = 0;
  const view = revisions(10, () => {
    views += 1;
    spend(3);
  });
  const opened = Array.from({ length: 500 }, () => streams.open().stream);
  for (const stream of opened) stream.take(view);
  setImmediate(() => {
    for (const stream of opened) stream.close();
  });
  await turn();
  await turn();
  expect(views).toBeLessThan(50);
});

test("new subscribers are served during a round, however fast the view of the others changes", async () => {
  const settledView = revisions(10, () => spend(isSettled ? 1 : 0));
  let isSettled = false;
  const settled = Array.from({ length: 200 }, () => streams.open(() => true, 1_000));
  for (const { stream } of settled) stream.take(settledView);
  await turn();
  isSettled = true;
  const churn = setInterval(streams.change, 5);
  streams.change();
  await turn();
  const newcomers = Array.from({ length: 20 }, () => streams.open());
  for (const { stream } of newcomers) stream.take(revisions(10, () => spend(2)));
  const batchesBefore = settled[0]?.written.length ?? 0;
  // Reset, then the view.
  while (newcomers.some(({ written }) => written.length < 2)) await turn();
  clearInterval(churn);
  // Two for each round would take ten rounds.
  expect((settled[0]?.written.length ?? 0) - batchesBefore).toBeLessThan(5);
  isSettled = false;
  for (const { stream } of [...settled, ...newcomers]) stream.close();
});
