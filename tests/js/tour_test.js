import { isFirstVisit } from "../../workbench/ui/assets/tour.js";
import { equal } from "./assert.js";

const storage = (refuses = false) => {
  const held = new Map();
  return {
    getItem: (name) => held.get(name) ?? null,
    setItem: (name, value) => {
      if (refuses) throw new Error("no storage");
      held.set(name, value);
    },
  };
};

Deno.test("the tour is shown on the first visit alone, never to who followed a link or where nothing is kept", () => {
  const kept = storage();
  equal(isFirstVisit(() => kept, "?token=a&run=b"), false);
  equal([isFirstVisit(() => kept, "?token=a"), isFirstVisit(() => kept, ""), isFirstVisit(() => kept, "")], [
    true,
    false,
    false,
  ]);
  equal(isFirstVisit(() => storage(true), ""), false);
  equal(isFirstVisit(() => ({ getItem: () => null, setItem: () => {} }), ""), false);
});
