// What can be done with a run: where it leads, what it is used for, and the files that it is saved as.

/** @import { Item } from "../menu.js" */
/** @typedef {{ policy?: string, reward?: string, settings?: string, onward?: string, change?: string }} Applied */
/**
 * @typedef {Object} Ways
 * @property {(wanted: Applied) => void} apply
 * @property {string} downloads where runs' files are
 * @property {(text: string, bad?: boolean) => void} say
 */

import { download } from "../../../views/dom.js";
import { tabs } from "../widget.js";

const OF_TRAIN = ["step", "group", "watched", "rollout", "k", "xmin", "xmax"]; // parameters of the address
const HERE = ["runs", "sort", "filter", "axis", "tab"];
export const INSPECT_TITLE =
  "Sample from its newest checkpoint on Inspect, with the run's task, pattern, rewards and scheme; can be undone";
export const SETTLE_TITLE = "Put its settings into the form of the next run; starts nothing, can be undone";
export const ONWARD_TITLE =
  "Put its settings into the form of the next run, which begins with its newest checkpoint; starts nothing";
const FILES = [ // what `/workbench-runs/NAME.KIND` sends
  ["zip", "Save run as ZIP", "Settings, metrics, rollouts, rewards and log, without checkpoints"],
  ["csv", "Save metrics as CSV", "One row a logged step"],
];
const EXPORTS = [ // what `python -m workbench export` writes
  ["model", "Export model", "The newest checkpoint's model, an adapter put into its base, with a model card"],
  ["adapter", "Export adapter", "The adapter alone, with a model card"],
  [
    "script",
    "Export training script",
    "A script that trains the same without the page, with its rows, rewards and an accelerate configuration",
  ],
];

/**
 * @param {{ name: string, policies: string[], gives: string | null, adapter: boolean }} run @param {Ways} ways
 * @returns {Item[]} The files that it is saved as.
 */
export const savedAs = ({ name, policies, gives, adapter }, { downloads, say }) => {
  const of = `of ${name}`;
  /** @type {Record<string, boolean>} */
  const there = { model: policies.length > 0 || gives !== null, adapter, script: true };
  return [
    ...FILES.map(([kind, label, title]) => ({
      label,
      title,
      of,
      href: `${downloads}/${encodeURIComponent(name)}.${kind}`,
    })),
    ...EXPORTS.filter(([kind]) => there[kind]).map(([kind, label, title]) => ({
      label,
      title,
      of,
      chosen: () => exportRun(downloads, name, kind, say),
    })),
  ];
};

/**
 * @param {{ name: string, policies: string[], gives: string | null, final: boolean }} run @param {Ways} ways
 * @returns {Item[]} What it is used for.
 */
export function usedFor({ name, policies, gives, final }, { apply }) {
  const of = `of ${name}`, [newest] = policies;
  /** @type {(Item | false)[]} */
  const items = [
    newest !== undefined &&
    { label: "Inspect the policy", title: INSPECT_TITLE, of, chosen: () => apply({ policy: newest }) },
    final && { label: "Use the settings", title: SETTLE_TITLE, of, chosen: () => apply({ settings: name }) },
    newest !== undefined &&
    { label: "Continue training", title: ONWARD_TITLE, of, chosen: () => apply({ onward: newest }) },
    gives === "reward model" && { label: "Use as a reward", of, chosen: () => apply({ reward: name }) },
  ];
  return items.filter((item) => item !== false);
}

/** @param {string} id */
export const showTab = (id) => document.getElementById(`${id}-tab-button`)?.click();

/** @param {string} name */
export function openInTrain(name) {
  const url = new URL(location.href);
  for (const other of [...OF_TRAIN, ...HERE]) url.searchParams.delete(other);
  url.searchParams.set("run", name);
  history.replaceState(history.state, "", url); // read by the Train tab when it is shown for the first time
  showTab("train");
  tabs.showTrain(name);
  focusState();
}

/** Moves the focus to the run's state, which Gradio shows a few frames after its tab was pressed. */
function focusState(frames = 60) {
  const state = document.getElementById("run-state");
  state?.focus({ preventScroll: true });
  if (frames && document.activeElement !== state) requestAnimationFrame(() => focusState(frames - 1));
}

/**
 * Saves a run's model, adapter or script, which takes a while.
 * @param {string} downloads where runs' files are @param {string} name @param {string} kind @param {Ways["say"]} say
 */
async function exportRun(downloads, name, kind, say) {
  say(`Exporting the ${kind} of ${name} …`);
  try {
    const answer = await fetch(`${downloads}/${encodeURIComponent(name)}/${kind}.zip`);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    download(`${name}-${kind}.zip`, await answer.blob());
    say(`The ${kind} of ${name} is in your downloads.`);
  } catch (error) {
    say(`The ${kind} of ${name} was not exported: ${error instanceof Error ? error.message : error}`, true);
  }
}
