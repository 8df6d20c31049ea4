// Work done a few milliseconds a turn.

import { later } from "../../workbench/views/charts/work.js";
import { equal } from "./assert.js";

Deno.test("a job that fails is reported, and those after it are done all the same", async () => {
  const reported = new Promise((resolve) =>
    addEventListener("error", (event) => {
      event.preventDefault();
      resolve(event.message);
    }, { once: true })
  );
  const done = new Promise((resolve) => {
    later(() => {
      throw new Error("no such line");
    });
    later(() => resolve("drawn"));
  });
  equal([(await reported).includes("no such line"), await done], [true, "drawn"]);
});
