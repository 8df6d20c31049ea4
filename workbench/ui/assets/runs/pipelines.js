// The table's rows where runs are stages of pipelines: a pipeline is one row, its stages follow it when it is unfolded.
// @ts-check

import { plural, shownRuns } from "./columns.js";

/** @import { Change, Sort } from "./columns.js" */
/** @import { PipelineRow, RunRow, StagePayload } from "./payloads.js" */

/**
 * A row of the table. `key` tells it from all others, `kind` says what it is. A stage that has a run is that run's row,
 * with the stage's name as its `label`.
 * @typedef {RunRow & {key: string, kind: "run" | "pipeline" | "stage", label: string, inside: boolean,
 *   unfolded?: boolean, words?: string, measured?: Change | null}} Row
 */

/** @param {RunRow} run @param {StagePayload} [stage] @returns {Row} */
const runRow = (run, stage) => ({
  ...run,
  key: run.name,
  kind: "run",
  label: stage?.name ?? run.name,
  inside: stage !== undefined,
  measured: stage ? changeOf(stage) : null,
});

/** @param {StagePayload} stage @returns {Change | null} */
const changeOf = ({ metric, before, after }) =>
  metric !== null && before !== null && after !== null ? { metric, before, after } : null;

const BLANK = {
  task: null,
  policy: null,
  scheme: null,
  seed: null,
  gives: null,
  policies: [],
  note: "",
  tags: [],
  reward: null,
  accuracy_best: null,
  accuracy_last: null,
  seconds: null,
  corrupt: 0,
};

/** @param {StagePayload[]} stages The first that is neither finished nor waiting. */
const atHand = (stages) => stages.find(({ state }) => state !== "finished" && state !== "waiting");

/** @param {PipelineRow} pipeline @param {Set<string>} unfolded @returns {Row} */
function pipelineRow(pipeline, unfolded) {
  const { name, stages } = pipeline;
  const measured = stages.filter(({ metric }) => metric === "accuracy").map(({ after }) => Number(after));
  const stage = atHand(stages);
  return {
    ...BLANK,
    ...pipeline,
    key: `pipeline ${name}`,
    kind: "pipeline",
    label: name,
    inside: false,
    unfolded: unfolded.has(name),
    task: stage ? `${stage.name}: ${stage.state}` : null,
    scheme: "pipeline",
    accuracy_best: measured.length ? Math.max(...measured) : null,
    accuracy_last: measured.at(-1) ?? null,
    words: stages.map((one) => one.name).join(" "),
  };
}

/** @param {PipelineRow} pipeline @param {StagePayload} stage @returns {Row} */
const stageRow = (pipeline, stage) => ({
  ...BLANK,
  key: `stage ${pipeline.name}/${stage.name}`,
  kind: "stage",
  name: stage.name,
  label: stage.name,
  inside: true,
  state: stage.state,
  reason: stage.reason,
  final: true,
  resumable: false,
  step: stage.rows,
  total: null,
  created: stage.started,
  scheme: stage.kind,
});

/**
 * The rows in sight, in their order: runs of their own and pipelines, filtered and sorted, and the stages of those that
 * are unfolded.
 * @param {RunRow[]} runs @param {PipelineRow[]} pipelines @param {Set<string>} unfolded @param {Sort} sort
 * @param {string} filter
 */
export function tableRows(runs, pipelines, unfolded, sort, filter) {
  const inside = new Set(pipelines.flatMap(({ stages }) => stages.map(({ run }) => run)));
  const byName = new Map(runs.map((run) => [run.name, run]));
  const named = new Map(pipelines.map((pipeline) => [`pipeline ${pipeline.name}`, pipeline]));
  const top = [
    ...runs.filter(({ name }) => !inside.has(name)).map((run) => runRow(run)),
    ...pipelines.map((pipeline) => pipelineRow(pipeline, unfolded)),
  ];
  return /** @type {Row[]} */ (shownRuns(top, sort, filter)).flatMap((row) => {
    const pipeline = named.get(row.key);
    if (!pipeline || !row.unfolded) return [row];
    const stages = pipeline.stages.map((stage) => {
      const run = byName.get(stage.run ?? "");
      return run ? runRow(run, stage) : stageRow(pipeline, stage);
    });
    return [row, ...stages];
  });
}

/** @param {Row[]} rows "3 runs, 1 pipeline" of those in sight. */
export function counted(rows) {
  const [runs, pipelines] = ["run", "pipeline"].map((kind) => rows.filter((row) => row.kind === kind).length);
  const parts = [runs || !pipelines ? plural(runs, "run") : "", pipelines ? plural(pipelines, "pipeline") : ""];
  return parts.filter(Boolean).join(", ");
}
