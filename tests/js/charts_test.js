// The pure parts of charts: thinning, smoothing, axes, keys, colours, files, several runs. All numbers by hand.

import { equal, near } from "./assert.js";
import {
  averaged,
  domain,
  extent,
  indexAt,
  logTicks,
  nearestX,
  thinned,
  tickLabel,
  ticks,
  valueText,
} from "../../workbench/views/charts/scale.js";
import { columnsOf, csv, fileName, nameIn, numbers } from "../../workbench/views/charts/data.js";
import { keyChange } from "../../workbench/views/charts/keys.js";
import { overlayPanels } from "../../workbench/views/charts/overlay.js";
import { colour } from "../../workbench/views/charts/style.js";

const line = (x, y = x) => ({ label: "a", x, y, colour: 0, dash: 0, least: 0 });

Deno.test("a long line keeps the first, least, greatest and last point of each column", () => {
  const x = Array.from({ length: 12 }, (_, i) => i);
  equal(thinned(x, [5, 9, 1, 5, 5, 4, 0, 2, 8, 3, 3, 3], 0, 12, 2), [0, 1, 2, 5, 6, 8, 11]); // columns 0-5 and 6-11
  equal(thinned([1, 2, 3], [1, 5, 2], 0, 3, 2), [0, 1, 2]);
  const y = x.map(() => 0).concat(Array(9988).fill(0)), long = y.map((_, i) => i);
  [y[4321], y[8765]] = [5, -5]; // a peak and a pit of one point
  const kept = thinned(long, y, 0, 10_000, 300);
  if (kept.length > 1_200 || !kept.includes(4321) || !kept.includes(8765)) throw new Error(`${kept.length} points`);
});

Deno.test("the moving average is corrected for its start, and may be had in parts", () => {
  const { values } = averaged([1, 10, 100], 0.5); // 0.5 / 0.5; 5.25 / 0.75; 52.625 / 0.875
  near(values, [1, 7, 52.625 / 0.875]);
  equal(averaged([1, 10, 100], 0.5, averaged([1, 10], 0.5)).values, values);
});

Deno.test("ticks are round and come to an end", () => {
  equal(ticks(0, 1, 4).values, [0, 0.5, 1]);
  equal(ticks(0, 10, 4).values, [0, 5, 10]);
  equal(ticks(-3, 3, 4).values, [-2, 0, 2]);
  equal(ticks(-3, 22, 4).values, [0, 10, 20]);
  equal(ticks(0, 5, 20, true).values, [0, 1, 2, 3, 4, 5]);
  if (ticks(1, 1 + Number.EPSILON, 4).values.length > 5) throw new Error("too many");
  equal(logTicks(0.9, 120).map(({ value }) => value), [1, 10, 100]);
  equal(logTicks(1, 10).map(({ value }) => value), [1, 2, 5, 10]);
});

Deno.test("labels have the digits that tell them apart", () => {
  equal([tickLabel(0.25, 0.05, false), tickLabel(0, 0.1, false), tickLabel(-1.5, 0.5, false)], [
    "0.25",
    "0",
    "\u22121.5",
  ]);
  equal([tickLabel(0.5, 0.1, true), tickLabel(0.0004, 0.0002, false)], ["50%", "4e\u22124"]);
  equal(ticks(127.2, 128, 4).values.map((value) => tickLabel(value, 0.2, false)), [
    "127.2",
    "127.4",
    "127.6",
    "127.8",
    "128.0",
  ]);
  equal([valueText(null), valueText(0), valueText(13.75), valueText(-0.25), valueText(1234.5)], [
    "–",
    "0",
    "13.75",
    "\u22120.250",
    "1235",
  ]);
  equal([valueText(0.8, true), valueText(0.05, true), valueText(0, true), valueText(0.0002)], [
    "80 %",
    "5.0 %",
    "0 %",
    "2.0e\u22124",
  ]);
});

Deno.test("an axis is that of the values in sight; one value has an axis of its size", () => {
  const curve = (y) => [{ x: [0, 1], rows: [{ y, indices: [0, 1] }] }];
  near(extent(curve([0.1, 0.10000000000000002]), 0, 1), [0.044, 0.156]);
  near(extent(curve([0, 1]), 0, 1, true), [0, 1.06]);
  near(extent(curve([1, 100]), 0, 1, false, true), [-0.12, 2.12]);
  equal(domain([line([1, 3])], null), [0, 5]);
  equal(domain([line([-3, 2]), line([1, 4])], null, false), [-3, 4]);
  equal(domain([line([1, 3])], [1, 2]), [1, 2]);
});

Deno.test("a point is read at its x or before", () => {
  equal([
    indexAt(line([1, 5, 9]), 5),
    indexAt(line([1, 5, 9]), 8),
    indexAt(line([1, 5, 9]), 0),
    indexAt(line([1, 5]), null),
  ], [1, 1, -1, 1]);
  equal([nearestX([line([1, 5]), line([4])], 4.4), nearestX([], 1)], [4, null]);
});

Deno.test("keys move over the points, pick, and zoom", () => {
  const lines = [line([1, 2, 3, 5, 8, 13, 21, 34, 55])];
  const at = (key, pointed = null, range = null) => keyChange(key, { lines, range, pointed });
  equal([at("ArrowLeft"), at("Home"), at("ArrowRight", 1), at("End")], [{ point: 55 }, { point: 1 }, { point: 2 }, {
    point: 55,
  }]);
  equal(at("+", 13), { zoom: [0, 26.75] }); // half of 0 to 55, about 13, no further left than 0
  equal([at("End", 13, [0, 26.75]), at("-", 21, [0, 26.75])], [{ point: 21 }, { zoom: [0, 47.75] }]);
  equal([at("-", 26, [0, 40]), at("0"), at("Escape"), at("Enter"), at("Enter", 5)], [
    { zoom: null },
    { zoom: null },
    { point: null },
    {},
    { pick: 5 },
  ]);
  equal([at("+", 13, [12, 14]), at("a"), keyChange("Home", { lines: [line([])], range: null, pointed: null })], [
    {},
    null,
    null,
  ]);
});

Deno.test("a table has a row a step and no formula", () => {
  equal(csv([["grad_norm", [1, 2, 3], [1, 10, 100]]]), 'step,"grad_norm"\n1,1\n2,10\n3,100\n');
  equal(csv([['=a"b', [1], [0.1]], ["c", [2], [null]]], "x"), '"x","\'=a""b","c"\n1,0.1,\n2,,\n');
  equal(fileName("run 1", "", "kl/k1"), "run_1-kl_k1");
});

Deno.test("columns come packed or as rows", () => {
  equal(numbers("AACAPwAAAMA="), [1, -2]);
  equal(columnsOf([{ step: 1, a: 0.5, event: "x" }, { step: 2, a: 1 }]).a, [[1, 2], [0.5, 1]]);
  equal([
    nameIn("rewards/<name>/mean", "rewards/a/b/mean"),
    nameIn("rewards/<name>/mean", "rewards/a/std"),
    nameIn("loss", "loss"),
  ], ["a/b", null, null]);
});

Deno.test("no two configurations share a colour", () => {
  const colours = Array.from({ length: 24 }, (_, n) => colour(n));
  equal(new Set(colours).size, 24);
});

const SEEDS = {
  key: "loss",
  title: "Loss",
  series: [{ metric: "loss", label: "loss", style: 0 }],
  lines: [
    {
      configuration: 0,
      series: 0,
      x: [1, 2],
      mean: [2, 3],
      low: [1, 2],
      high: [3, 4],
      runs: [{ name: "p0", x: null, y: [1, 2] }, { name: "p1", x: null, y: [3, 4] }],
    },
    { configuration: 1, series: 0, x: [1], mean: [5], low: null, high: null, runs: [{ name: "o", x: null, y: [5] }] },
  ],
};
const CONFIGURATIONS = [{ label: "process", colour: 3 }, { label: "outcome", colour: 1 }];

function drawn(off, each = false) {
  const [panel] = overlayPanels([structuredClone(SEEDS)], CONFIGURATIONS, { off: new Set(off), each });
  return panel.lines().map(({ label, y, low, faint }) => [label, y, low ?? null, Boolean(faint)]);
}

Deno.test("seeds are a mean with a band, one of them switched off the others as they are", () => {
  equal(drawn([]), [["process, mean", [2, 3], [1, 2], false], ["outcome", [5], null, false]]);
  equal(drawn([], true).map(([label, , , faint]) => [label, faint]), [["p0", true], ["p1", true], [
    "process, mean",
    false,
  ], ["outcome", false]]);
  equal(drawn(["p1"]), [["p0", [1, 2], null, false], ["outcome", [5], null, false]]);
  equal(drawn(["p0", "p1"]), [["outcome", [5], null, false]]);
  const [panel] = overlayPanels([structuredClone(SEEDS)], CONFIGURATIONS, { off: new Set(["o"]), each: false });
  equal(panel.columns().map(([name]) => name), [
    "process, mean",
    "process, lowest",
    "process, highest",
    "process, p0",
    "process, p1",
  ]);
});
