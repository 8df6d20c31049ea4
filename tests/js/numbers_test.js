import * as numbers from "../../workbench/views/numbers.js";
import { equal, near } from "./assert.js";

Deno.test("numbers have a true minus and no sign where they round to zero", () => {
  equal([1.5, -1.5, -0.0004, null].map((value) => numbers.number(value)), ["1.500", "\u22121.500", "0.000", "–"]);
  equal([1.5, -1.5, 0.0004, 0].map((value) => numbers.signed(value, 2)), ["+1.50", "\u22121.50", "0.00", "0.00"]);
});

Deno.test("a score is as short as it is", () => {
  equal([1, 0.5, 1 / 3, -2, null].map(numbers.score), ["1", "0.5", "0.33", "\u22122", "–"]);
});

Deno.test("two significant figures, without trailing zeros", () => {
  equal([0.5, 1234, -0.0123, undefined].map((value) => numbers.precise(value)), ["0.5", "1200", "\u22120.012", "–"]);
});

Deno.test("shares are in percent, small ones with a digit more", () => {
  equal([numbers.share(1, 2), numbers.share(1, 12), numbers.share(0, 12), numbers.share(1, 0)], [
    "50 %",
    "8.3 %",
    "0 %",
    "–",
  ]);
  equal([numbers.percent(0.255), numbers.percent(null)], ["26 %", "–"]);
  equal([0.315, Math.fround(0.315), 0.285].map((one) => numbers.percent(one)), ["32 %", "32 %", "29 %"]);
});

Deno.test("durations are in the two largest units", () => {
  equal([59.4, 60, 3599, 3600, 7384, -1, null].map(numbers.duration), [
    "59 s",
    "1 min 0 s",
    "59 min 59 s",
    "1 h 0 min",
    "2 h 3 min",
    "0 s",
    "–",
  ]);
});

Deno.test("mean, and a number of things", () => {
  near(numbers.meanOf([1, 2, 6]), 3);
  equal([numbers.count(1, "step"), numbers.count(2, "step")], ["1 step", "2 steps"]);
});
