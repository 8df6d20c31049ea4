// Where a row of the table leads: a run opened on Train, or exported as a file as `python -m workbench export` writes it.

import { download } from "../../../views/dom.js";
import { tabs } from "../widget.js";

const OF_TRAIN = ["step", "group", "watched", "rollout", "k", "xmin", "xmax"]; // parameters of the address
const HERE = ["runs", "sort", "filter", "axis", "tab"];

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
}

/**
 * Saves a run's model, adapter or script, which takes a while.
 * @param {string} downloads where runs' files are @param {string} name @param {string} kind
 * @param {(text: string, bad?: boolean) => void} say
 */
export async function exportRun(downloads, name, kind, say) {
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
