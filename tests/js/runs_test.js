// What the Train and Runs tabs compute without a page: addresses, states, the table's order, colours.

import { giveColours, readSort, shownRuns, writeSort } from "../../workbench/ui/assets/runs/table.js";
import {
  addressWriter,
  duration,
  nearest,
  progressText,
  readAddress,
  readNames,
  readRange,
  startedSince,
  stateOf,
  stopLabel,
} from "../../workbench/ui/assets/train/state.js";
import { tagsOf } from "../../workbench/ui/assets/runs/runs.js";
import { equal } from "./assert.js";

const NEWS = {
  state: "running",
  step: 3,
  total_steps: 60,
  started: 100,
  seconds: 30,
  final: false,
  device: "cpu",
  reason: "",
};

Deno.test("a run's state and progress are one line", () => {
  equal(
    progressText({ ...NEWS, seconds: null, resumed_from: 2 }, 165),
    "step 3 of 60 · 1 min 5 s · cpu · resumed from step 2",
  );
  equal(progressText({ ...NEWS, final: true }, 999), "step 3 of 60 · 30 s · cpu");
  equal(progressText({ ...NEWS, state: "queued", started: null, reason: "waits for a" }, 0), "waits for a");
  const queued = { ...NEWS, state: "queued", started: null, reason: "waits for a", ahead: 2 };
  equal(progressText({ ...queued, wait: 190 }, 0), "waits for a · place 2 in the queue · starts in about 3 min 10 s");
  equal(progressText({ ...queued, wait: null }, 0), "waits for a · place 2 in the queue");
  const paced = "step 3 of 60 · 30 s · 2.1 s a step · about 2 min 0 s left · cpu"; // 57 · 2.1 = 119.7
  equal(progressText({ ...NEWS, pace: 2.1 }, 130), paced);
  equal(progressText({ ...NEWS, state: "queued" }, 104), "loading the trainer, 4 s");
  equal([stopLabel(NEWS), stopLabel(queued)], ["Stop", "Leave the queue"]);
  equal([stateOf({ ...NEWS, stopping: true }), stateOf({ ...NEWS, state: "queued" })], ["stopping", "starting"]);
  equal([duration(59.6), duration(3599), duration(7260)], ["1 min 0 s", "59 min 59 s", "2 h 1 min"]);
  equal([nearest([1, 5, 34], 20), nearest([1, 5, 34], 3)], [2, 0]);
});

Deno.test("what Train shows survives its address, and Inspect's part comes back when it is left", () => {
  const shown = { run: "a", step: 5, group: 1, watched: true, place: { rollout: 2, k: 1 }, range: [0, 12.3] };
  const write = addressWriter(), parameters = new URLSearchParams("rollout=7&k=3&tab=train");
  write(parameters, shown);
  equal(`${parameters}`, "rollout=2&k=1&tab=train&run=a&step=5&group=2&watched=1&xmin=0&xmax=12.3");
  equal(readAddress(parameters), shown);
  write(parameters, null);
  equal(`${parameters}`, "rollout=7&k=3&tab=train");
  equal(readAddress(new URLSearchParams("group=0&rollout=1&xmin=5&xmax=5")), {
    run: null,
    step: null,
    group: 0,
    watched: false,
    place: null,
    range: null,
  });
  equal(readRange(new URLSearchParams("xmin=1&xmax=x")), null);
});

Deno.test("runs are filtered by every word, and sorted with those without a value last", () => {
  const runs = [
    { name: "b", task: "t", state: "finished", accuracy_best: 0.5 },
    { name: "a10", task: "t", state: "finished", accuracy_best: null },
    { name: "a9", task: "t", state: "stopped", accuracy_best: 0.75 },
  ];
  const names = (sort, filter = "") => shownRuns(runs, readSort(sort), filter).map((run) => run.name);
  equal([names("name"), names("-accuracy_best"), names("accuracy_best")], [
    ["a9", "a10", "b"],
    ["a9", "b", "a10"],
    ["b", "a9", "a10"],
  ]);
  equal([names("name", "Finished a"), names("name", "nowhere")], [["a10"], []]);
  equal([readSort("-x"), writeSort(readSort(null)), writeSort(readSort("-name"))], [
    { key: "created", down: true },
    "",
    "-name",
  ]);
});

Deno.test("a configuration has one colour for as long as it is chosen", () => {
  const colours = new Map();
  giveColours(colours, ["p", "o"]);
  giveColours(colours, ["o", "q"]);
  equal([...colours], [["o", 1], ["q", 0]]);
});

Deno.test("the run of a Start whose answer was lost is the newest that was not there before", () => {
  const runs = [{ name: "newest" }, { name: "new" }, { name: "old" }];
  equal(startedSince(["old"], runs), "newest");
  equal(startedSince([], runs), "newest");
  equal(startedSince(["old", "new", "newest"], runs), null);
  equal(readNames('["old"]'), ["old"]);
  for (const stored of [null, "", "{", '{"a": 1}', "null"]) equal(readNames(stored), null);
});

Deno.test("a run is found by its tags and note, and tags are read between commas", () => {
  const runs = [{ name: "a", tags: ["Baseline"], note: "" }, { name: "b", tags: [], note: "repeat this one" }];
  const sort = readSort(null);
  equal(shownRuns(runs, sort, "baseline").map(({ name }) => name), ["a"]);
  equal(shownRuns(runs, sort, "repeat").map(({ name }) => name), ["b"]);
  equal(tagsOf(" one, two words ,, one"), ["one", "two words"]);
});
